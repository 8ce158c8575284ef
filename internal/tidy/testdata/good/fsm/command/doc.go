// Package command is on floor 1.
package command
