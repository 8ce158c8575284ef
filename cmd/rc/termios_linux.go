package main

import "golang.org/x/sys/unix"

// How a terminal's settings are read and set.
const (
	getTermios = unix.TCGETS
	setTermios = unix.TCSETS
)
