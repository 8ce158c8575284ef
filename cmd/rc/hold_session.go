package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"rcd/client"
)

// The bounds of --session-timeout, which the controllers hold every client to,
// and what it is when it is not given.
const (
	minSession     = 15 * time.Second
	maxSession     = time.Hour
	defaultSession = time.Minute
)

// session returns for how long the hold outlives rc's last word, 0 for a hold
// that does not depend on rc.
func (v *holdCmd) session() (time.Duration, error) {
	refuse := func(text string) (time.Duration, error) { return 0, &usageError{text: text, verb: "hold"} }
	switch {
	case !v.Session && v.SessionTimeout != 0:
		return refuse("--session-timeout needs --session")
	case !v.Session:
		return 0, nil
	case v.Detach:
		return refuse("a session is that of an rc that stays; leave out --detach, or --session")
	case v.SessionTimeout == 0:
		return defaultSession, nil
	case v.SessionTimeout < minSession || v.SessionTimeout > maxSession:
		return refuse(fmt.Sprintf("--session-timeout must be from %s to %s", minSession, maxSession))
	}
	return v.SessionTimeout, nil
}

// clientFor makes the client of rc hold, which must not give up before the
// hold's session does.
func (a *app) clientFor(session time.Duration) (*client.Client, error) {
	return a.newClient(client.Options{
		Notify:       func(n client.Notice) { a.say("%s", n) },
		LongPatience: max(client.DefaultLongPatience, 2*session),
	})
}

// keepSession sends the hold's heartbeats until stop, on connections of their
// own: nothing else that rc asks holds them up.
func (h *holder) keepSession() (stop func(), err error) {
	id := h.job.ID
	if h.job.SessionSeconds == 0 {
		ctx, cancel := context.WithTimeout(h.app.ctx, cancelWait)
		defer cancel()
		if _, err := h.giveUp(ctx); err != nil {
			h.app.say("hold %s could not be released: %s. End it: rc release %s", id, sentence(err), id)
		}
		return nil, fmt.Errorf("the controllers are of an older version and know no sessions; leave out --session, or upgrade all of them")
	}
	c, err := h.app.newClient(client.Options{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(h.app.ctx)) // it goes on while the hold is released
	var work sync.WaitGroup
	work.Go(func() {
		err := c.KeepSession(ctx, id, client.SessionOptions{
			Submitter: h.submitter, Timeout: h.session,
			Silent: func(silent, left time.Duration) { h.app.say("%s", silence(id, silent, left)) },
			Heard:  func() { h.app.say("a controller has answered again; hold %s goes on", id) },
		})
		if err != nil && ctx.Err() == nil {
			h.app.say("the session of hold %s cannot be kept: %s; it ends within %s", id, sentence(err), h.session)
		}
	})
	return func() {
		cancel()
		work.Wait()
		c.Close()
	}, nil
}

// silence says that no controller has answered for some time.
func silence(id string, silent, left time.Duration) string {
	if left <= 0 {
		return fmt.Sprintf("no controller has answered for %s; hold %s may have ended", duration(silent), id)
	}
	return fmt.Sprintf("no controller has answered for %s; hold %s ends in %s unless one does", duration(silent), id, duration(left))
}
