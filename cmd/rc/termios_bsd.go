//go:build darwin || dragonfly || freebsd || netbsd || openbsd

package main

import "golang.org/x/sys/unix"

// How a terminal's settings are read and set.
const (
	getTermios = unix.TIOCGETA
	setTermios = unix.TIOCSETA
)
