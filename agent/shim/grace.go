package shim

import (
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
	"rcd/model"
)

// warning is the one signal that a job which asks for it gets some time before its runtime limit, to save what it has. It belongs to the supervisor's
// goroutine.
type warning struct {
	wish  model.GraceSignal
	timer *time.Timer // never fires without a wish or a limit
	sent  bool
	log   *slog.Logger
}

// newWarning begins to count towards the limit, which has begun to count itself. The caller stops the timer.
func newWarning(spec Spec, l *limit, log *slog.Logger) *warning {
	w := &warning{timer: newWatchdog(0), log: log}
	for _, entry := range spec.Env {
		text, asked := strings.CutPrefix(entry, model.GraceSignalEnv+"=")
		if !asked || text == "" {
			continue
		}
		wish, err := model.ParseGraceSignal(text)
		if err != nil {
			log.Warn("no warning before the limit", "error", err) // the agent refuses these
			continue
		}
		w.wish = wish
	}
	w.aim(l)
	return w
}

// aim sets the warning to come so long before the limit as that is now, or at once if that moment is over.
func (w *warning) aim(l *limit) {
	if w.wish.Signal == 0 || w.sent || l.max == 0 {
		return
	}
	w.timer.Reset(max(0, l.max-w.wish.Before-time.Since(l.since)))
}

// send warns the main process and its group, once.
func (w *warning) send(job proc.ID) {
	w.sent = true
	sig := unix.Signal(w.wish.Signal)
	if err := proc.SignalGroup(job, sig); err != nil {
		w.log.Warn("warning before the limit not sent", "error", err)
		return
	}
	w.log.Info("warned of the limit", "signal", unix.SignalName(sig), "before", w.wish.Before)
}
