// Package clock stands for the real one.
package clock

func Real() {}
