// Package relay is on floor 2.
package relay
