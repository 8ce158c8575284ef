// Package relay has one file and its tests.
package relay
