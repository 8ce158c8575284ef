package main

import (
	"log/slog"

	"golang.org/x/sys/unix"
)

// hideSecrets keeps a job that runs under the daemon's own user from reading
// the daemon's tokens out of /proc/PID/environ or its memory. Root still can.
func hideSecrets(logger *slog.Logger) {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		logger.Warn("the daemon's environment can be read by processes of its user", "err", err)
	}
}
