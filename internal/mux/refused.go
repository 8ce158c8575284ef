package mux

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	// repeatAfter is how often one reason of one host is logged. A peer with
	// another key tries five times a second for as long as it runs.
	repeatAfter = time.Minute

	// maxReasons bounds what is kept; a stranger chooses hosts and some of the
	// words.
	maxReasons = 256
)

// refusalLog says that connections were refused, once a minute for each host
// and reason. Its methods may be called concurrently.
type refusalLog struct {
	logger *slog.Logger

	mu   sync.Mutex // guards seen
	seen map[refusalKey]refusalTally
}

type refusalKey struct{ host, reason string }

type refusalTally struct {
	logged  time.Time
	leftOut int // since then
}

func newRefusalLog(logger *slog.Logger) *refusalLog {
	return &refusalLog{logger: logger, seen: map[refusalKey]refusalTally{}}
}

// refused logs err unless the same was logged lately.
func (r *refusalLog) refused(remote net.Addr, err error, now time.Time) {
	level := slog.LevelInfo
	if errors.Is(err, io.EOF) {
		level = slog.LevelDebug // someone asked only whether the port is open
	}
	if !r.logger.Enabled(context.Background(), level) {
		return
	}
	leftOut, due := r.count(refusalKey{hostOf(remote), reasonOf(err)}, now)
	if !due {
		return
	}
	args := []any{"remote", remote.String(), "err", err}
	if leftOut > 0 {
		args = append(args, "not_logged", leftOut)
	}
	r.logger.Log(context.Background(), level, "connection refused", args...)
}

// count returns whether to log, and how many were not logged since the last.
func (r *refusalLog) count(key refusalKey, now time.Time) (leftOut int, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	tally, known := r.seen[key]
	if !known && len(r.seen) >= maxReasons {
		r.forget(now)
		if len(r.seen) >= maxReasons {
			key = refusalKey{} // all the others count as one
			tally, known = r.seen[key]
		}
	}
	if known && now.Sub(tally.logged) < repeatAfter {
		tally.leftOut++
		r.seen[key] = tally
		return 0, false
	}
	r.seen[key] = refusalTally{logged: now}
	return tally.leftOut, true
}

// forget drops what would be logged again anyway.
func (r *refusalLog) forget(now time.Time) {
	for key, tally := range r.seen {
		if now.Sub(tally.logged) >= repeatAfter {
			delete(r.seen, key)
		}
	}
}

func hostOf(addr net.Addr) string {
	host, _, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	return host
}

// reasonOf is the part of a failure that is the same at the next try: network
// errors carry the peer's port.
func reasonOf(err error) string {
	var r *refusal
	var network *net.OpError
	switch {
	case errors.As(err, &r):
		return r.Error()
	case errors.As(err, &network):
		return network.Op + ": " + network.Err.Error()
	}
	return err.Error()
}
