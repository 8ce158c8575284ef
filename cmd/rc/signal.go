package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"rcd/client"
)

// errInterrupted ends the context of a verb that got SIGINT, SIGTERM or SIGHUP.
var errInterrupted = errors.New("interrupted")

// interruptible returns a context that ends with errInterrupted at the first
// SIGINT, SIGTERM or SIGHUP. At the second rc exits on the spot: whoever presses
// Ctrl-C twice does not want to wait for the controller. SIGHUP counts because
// whoever closes a terminal leaves as well, and a hold, or a job in the queue,
// must not stay behind for nobody; under nohup it is left alone. SIGPIPE is
// turned into write errors, so that rc run can say that the job goes on.
func interruptible(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals, pipes := make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) {
		signal.Notify(signals, syscall.SIGHUP)
	}
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

// alsoOnHangup makes the end of rc's terminal an interruption for a verb that
// must not end without a word, until stop. Started with nohup, rc outlives it.
func (a *app) alsoOnHangup() (stop func()) {
	if signal.Ignored(syscall.SIGHUP) {
		return func() {}
	}
	ctx, cancel := context.WithCancelCause(a.ctx)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		select {
		case <-hangups:
			cancel(errInterrupted)
		case <-done:
		}
	}()
	a.ctx = ctx
	return func() {
		signal.Stop(hangups)
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

// cutOff ends a verb whose request was under way at Ctrl-C.
func (a *app) cutOff(err error) error {
	var outage *client.OutageError
	f := failure{Code: codeInterrupted, Message: "interrupted; nothing was changed"}
	if errors.As(err, &outage) && outage.Unknown {
		f.Message = "interrupted; a controller had the request already, so it may have been carried out"
		f.Hint, f.RequestID = "Look before you ask again: rc jobs, rc devices", outage.RequestID
	}
	text := f.Message
	if f.Hint != "" {
		text += ". " + f.Hint
	}
	a.report(f, text)
	return exitError(exitInterrupted)
}

// interrupted reports whether a signal has ended the verb's context.
func (a *app) interrupted() bool {
	return a.ctx != nil && errors.Is(context.Cause(a.ctx), errInterrupted)
}
