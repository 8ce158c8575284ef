package model

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// GraceSignalEnv is the variable of a job's environment that asks for a warning
// before the runtime limit. Without it, or with an empty value, none is sent.
const GraceSignalEnv = "RC_GRACE_SIGNAL"

// DefaultGraceSignal is what --grace-signal alone asks for.
const DefaultGraceSignal = "TERM@30s"

// defaultGraceBefore is how long before the limit a signal without a time of
// its own is sent.
const defaultGraceBefore = 30 * time.Second

// maxGraceBefore is the longest runtime that a job may have (ten years): no
// warning can come earlier.
const maxGraceBefore = 10 * 365 * 24 * time.Hour

// GraceSignal is a warning before the runtime limit.
type GraceSignal struct {
	Signal int           // Linux's number, 1 to 31
	Before time.Duration // how long before the limit, above 0
}

// linuxSignals are the names by number, whatever system this is built for: a
// job runs on Linux. KILL and STOP cannot warn anybody.
var linuxSignals = [...]string{
	1: "HUP", 2: "INT", 3: "QUIT", 4: "ILL", 5: "TRAP", 6: "ABRT", 7: "BUS", 8: "FPE", 9: "KILL", 10: "USR1", 11: "SEGV", 12: "USR2",
	13: "PIPE", 14: "ALRM", 15: "TERM", 16: "STKFLT", 17: "CHLD", 18: "CONT", 19: "STOP", 20: "TSTP", 21: "TTIN", 22: "TTOU", 23: "URG",
	24: "XCPU", 25: "XFSZ", 26: "VTALRM", 27: "PROF", 28: "WINCH", 29: "IO", 30: "PWR", 31: "SYS",
}

// ParseGraceSignal reads SIGNAL[@DURATION]: a signal's name, with or without
// SIG and in any case, or its number, and how long before the limit, 30 s if
// that is left out. The error is a sentence's end for whoever wrote it.
func ParseGraceSignal(text string) (GraceSignal, error) {
	name, ahead, timed := strings.Cut(text, "@")
	g := GraceSignal{Before: defaultGraceBefore}
	if timed {
		d, err := time.ParseDuration(ahead)
		if err != nil || d <= 0 || d > maxGraceBefore {
			return GraceSignal{}, fmt.Errorf("%.40q is no time before the limit; use one like 30s or 2m", ahead)
		}
		g.Before = d
	}
	var ok bool
	if g.Signal, ok = signalNumber(name); !ok {
		return GraceSignal{}, fmt.Errorf("%.40q is no signal; use a name like TERM or USR1, or a number from 1 to 31", name)
	}
	switch linuxSignals[g.Signal] {
	case "KILL", "STOP":
		return GraceSignal{}, errors.New("KILL and STOP cannot be caught, so they warn nobody; use TERM or USR1")
	}
	return g, nil
}

func signalNumber(name string) (int, bool) {
	if n, err := strconv.Atoi(name); err == nil {
		return n, n >= 1 && n < len(linuxSignals)
	}
	name = strings.TrimPrefix(strings.ToUpper(name), "SIG")
	for n, known := range linuxSignals {
		if known != "" && known == name {
			return n, true
		}
	}
	return 0, false
}
