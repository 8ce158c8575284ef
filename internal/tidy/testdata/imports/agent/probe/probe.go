// Package probe is on floor 1.
package probe
