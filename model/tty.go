package model

import (
	"strconv"
	"strings"
)

// TTYSizeEnv is the variable of a job's environment that gives its terminal a
// size from the first moment on: COLSxROWS, like 120x40. What is no size counts
// for nothing.
const TTYSizeEnv = "RC_TTY_SIZE"

// ParseTTYSize reads COLSxROWS, each from 1 to 65535.
func ParseTTYSize(text string) (cols, rows uint16, ok bool) {
	left, right, _ := strings.Cut(text, "x")
	c, err1 := strconv.ParseUint(left, 10, 16)
	r, err2 := strconv.ParseUint(right, 10, 16)
	if err1 != nil || err2 != nil || c == 0 || r == 0 {
		return 0, 0, false
	}
	return uint16(c), uint16(r), true
}
