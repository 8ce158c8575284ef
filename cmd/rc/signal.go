package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// errInterrupted ends the context of a verb that got SIGINT or SIGTERM.
var errInterrupted = errors.New("interrupted")

// interruptible returns a context that ends with errInterrupted at the first
// SIGINT or SIGTERM. At the second rc exits on the spot: whoever presses Ctrl-C
// twice does not want to wait for the controller. SIGPIPE is turned into write
// errors, so that rc run can say that the job goes on.
func interruptible(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals, pipes := make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	signal.Notify(pipes, syscall.SIGPIPE)
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for range 2 {
			select {
			case <-signals:
				if ctx.Err() != nil {
					restoreTerminal()
					os.Exit(exitInterrupted)
				}
				cancel(errInterrupted)
			case <-done:
				return
			}
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		signal.Stop(pipes)
		close(done)
		<-stopped
		cancel(context.Canceled)
	}
}

// onlyWatched ends a verb that changes nothing after Ctrl-C.
func (a *app) onlyWatched(what string) error {
	return a.leaveOff(fmt.Sprintf("interrupted; rc only watched %s, and has changed nothing", what), "")
}

// leaveOff ends a verb after Ctrl-C with what is to be said of that.
func (a *app) leaveOff(message, hint string) error {
	text := message
	if hint != "" {
		text += ". " + hint
	}
	a.report(failure{Code: codeInterrupted, Message: message, Hint: hint}, text)
	return exitError(exitInterrupted)
}

// interrupted reports whether a signal has ended the verb's context.
func (a *app) interrupted() bool {
	return a.ctx != nil && errors.Is(context.Cause(a.ctx), errInterrupted)
}
