// Package bench stands beside the floors.
package bench
