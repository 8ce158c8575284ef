package shim

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// limit is how long the job may run, counted on the monotonic clock from its start. It belongs to the supervisor's goroutine.
type limit struct {
	max      time.Duration // 0: no limit
	kept     time.Duration // what limit.cbor says
	since    time.Time
	watchdog *time.Timer
}

// start begins to count. The caller stops the timer.
func (l *limit) start() *time.Timer {
	l.since, l.watchdog = time.Now(), newWatchdog(l.max)
	return l.watchdog
}

// reason is why a job is ended whose time is over.
func (l *limit) reason() string { return fmt.Sprintf("max_runtime exceeded (%s)", l.max) }

// keep writes the limit down. It need not survive a power cut, which the job does not either.
func (l *limit) keep(dir string) error {
	err := writeRecord(dir, limitName, kindLimit, limitRecord{MaxRuntime: l.max}, replace)
	if err == nil {
		l.kept = l.max
	}
	return err
}

// lengthen gives the job more time. A job without a limit stays without one, and nothing is ever shortened, so orders may be repeated and overtake each
// other. Once the watchdog has been heard it is too late, and nobody calls this. A record that cannot be written is tried again at the agent's next word.
func (s *supervisor) lengthen(longer time.Duration) {
	l := &s.limit
	if l.max == 0 {
		return
	}
	if longer > l.max {
		l.max = longer
		l.watchdog.Reset(longer - time.Since(l.since))
	}
	if l.kept != l.max {
		if err := l.keep(s.dir); err != nil {
			s.log.Error("record limit", "error", err)
		}
	}
	s.board.change(func(*Status) {}) // a status tells the agent to look at the record
}

// Extend lengthens the job's runtime limit to longer, counted from its start. It returns at once and is repeated to the shim until that has it on disk; the
// longest one wished for counts. Without effect on a job that has no limit, has ended or is being ended, and while Limit has nothing to say.
func (h *Handle) Extend(longer time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.longer = max(h.longer, longer)
	select {
	case h.nudge <- struct{}{}:
	default:
	}
}

// Limit returns the limit that the shim ends the job by, as it has written it down; 0 is none. false while no shim has said so: it is just being started,
// or it is of an earlier release and goes by the spec for ever.
func (h *Handle) Limit() (time.Duration, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.limit, h.limited
}

// takeLimit reads what the shim has written down.
func (h *Handle) takeLimit() {
	var rec limitRecord
	if err := readRecord(h.dir, limitName, kindLimit, &rec); err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			h.log.Error("read limit", "dir", h.dir, "error", err)
		}
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.limit, h.limited = rec.MaxRuntime, true
}

// extension returns what the shim is still to be told, nil if nothing, as for a shim that has not said its limit. The caller holds mu.
func (h *Handle) extension() *extendBody {
	if h.limit == 0 || h.longer <= h.limit || h.status.Killing != "" {
		return nil
	}
	return &extendBody{MaxRuntime: h.longer}
}
