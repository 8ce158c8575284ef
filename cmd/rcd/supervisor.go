package main

import (
	"log/slog"
	"time"

	"rcd/internal/sdnotify"
)

// supervisor is whoever started this process and wants to hear how it does,
// often nobody.
type supervisor struct {
	notifier *sdnotify.Notifier
	logger   *slog.Logger
}

// newSupervisor finds it in the environment, and takes it out of there.
func newSupervisor(logger *slog.Logger) *supervisor {
	notifier, err := sdnotify.FromEnvironment()
	if err != nil {
		logger.Warn("the supervisor is told nothing", "error", err)
	}
	return &supervisor{notifier: notifier, logger: logger}
}

// say tells states. That it fails is no reason to end.
func (s *supervisor) say(states ...sdnotify.State) {
	if err := s.notifier.Send(states...); err != nil {
		s.logger.Debug("supervisor not told", "states", states, "error", err)
	}
}

// pace returns how often the supervisor must hear that the process is at work,
// 0 if it does not ask.
func (s *supervisor) pace() time.Duration { return s.notifier.Watchdog() / 3 }
