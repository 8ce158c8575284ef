package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"rcd/model"
)

// ErrNotDrained says that jobs are left on a host that is to be empty.
var ErrNotDrained = errors.New("the host is not empty yet")

const (
	// drainPoll is how often a drain looks at the host.
	drainPoll = 200 * time.Millisecond
	// drainSay is how often it says what it waits for.
	drainSay = 5 * time.Second
	// agentWait bounds the wait for an agent that has the data directory and
	// does not answer: one that starts adopts its jobs first.
	agentWait = 15 * time.Second
	// DefaultLeaderWait is DrainOptions.LeaderWait.
	DefaultLeaderWait = 15 * time.Second
)

// DrainOptions say how a host is drained.
type DrainOptions struct {
	Kill   bool   // end the jobs instead of waiting for them
	Reason string // an operator's words, for rc devices
	// LeaderWait bounds the wait for a leader; without one the host is drained
	// all the same, and the leader is told later. Zero: DefaultLeaderWait.
	LeaderWait time.Duration
	Logger     *slog.Logger
	Say        func(line string) // progress, for people; nil: nothing is said
}

// DrainHost takes every device of a host out of the pool until an operator
// returns it, and returns once no job is left: the jobs end by themselves or are
// ended, with or without an agent that runs. What is left then is in the
// status. An end of ctx leaves the host drained, with ErrNotDrained naming the
// jobs; ErrSurvivors names processes that could not be ended.
func DrainHost(ctx context.Context, config Config, o DrainOptions) (Status, error) {
	d := &hostDrain{config: config, o: o, dir: config.DataDir, begun: time.Now()}
	if d.o.LeaderWait == 0 {
		d.o.LeaderWait = DefaultLeaderWait
	}
	if d.o.Logger == nil {
		d.o.Logger = slog.New(slog.DiscardHandler)
	}
	if d.o.Say == nil {
		d.o.Say = func(string) {}
	}
	if _, err := os.Stat(d.dir); errors.Is(err, os.ErrNotExist) {
		d.say("no agent has ever run with data directory %s: there is nothing to drain", d.dir)
		return offlineStatus(config, nil), nil
	}
	if err := d.begin(ctx); err != nil {
		return offlineStatus(config, nil), err
	}
	d.say("host %s is being drained", config.Host)
	var killed error
	if o.Kill {
		killed = Drain(ctx, d.dir, d.o.Logger)
	}
	status, err := d.watch(ctx)
	if ctx.Err() != nil {
		return status, err // what Drain says of the end of ctx says less
	}
	return status, errors.Join(err, killed)
}

// hostDrain is one call of DrainHost.
type hostDrain struct {
	config Config
	o      DrainOptions
	dir    string
	begun  time.Time
	idle   time.Time // since when no job is there; zero: one is
	told   bool      // it has been said that no leader knows
	said   time.Time // when progress was said last
}

func (d *hostDrain) say(format string, args ...any) { d.o.Say(fmt.Sprintf(format, args...)) }

// begin puts the drain on disk, by the agent or in its place.
func (d *hostDrain) begin(ctx context.Context) error {
	orphans := false
	err := d.withAgent(ctx, func() error {
		_, err := ask(ctx, d.dir, controlRequest{Do: doDrain, Kill: d.o.Kill, Reason: d.o.Reason})
		return err
	}, func() error {
		book, err := openDrain(d.dir, d.config.Host)
		if book == nil {
			return err
		}
		if err := book.begin(declaredNames(d.config), d.o.Reason, d.o.Kill, d.config.Auto); err != nil {
			return err
		}
		orphans = true
		d.say("no agent runs; the one that starts next tells the cluster")
		return nil
	})
	if err != nil || !orphans {
		return err
	}
	return endOrphans(ctx, d.dir, d.o.Logger)
}

// withAgent does online, or offline with agents kept away if none runs.
func (d *hostDrain) withAgent(ctx context.Context, online, offline func() error) error {
	for deadline := time.Now().Add(agentWait); ; {
		err := online()
		if errors.Is(err, errNoAgent) {
			var unlock func()
			if unlock, err = lockOnly(d.dir); err == nil {
				err = offline()
				unlock()
				return err
			}
			if !errors.Is(err, ErrLocked) {
				return err
			}
		}
		if err == nil || errors.Is(err, errRefused) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the agent on %s answers nobody: it hangs, or is of an earlier release; restart it (its jobs go on) and drain again: %w", d.dir, err)
		}
		select {
		case <-time.After(drainPoll):
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrNotDrained, err)
		}
	}
}

// endOrphans concludes jobs whose shim is gone, as the next agent would: what
// is left of their trees is ended.
func endOrphans(ctx context.Context, dir string, logger *slog.Logger) error {
	entries, err := os.ReadDir(filepath.Join(dir, jobsDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("list jobs: %w", err)
	}
	all, err := shims()
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(dir, jobsDir, e.Name())
		if _, ok := parseKey(e.Name()); !ok || !all[path].Zero() {
			continue
		}
		// A record that cannot be read is for the next agent to tell of.
		if err := drainJob(ctx, path, logger); errors.Is(err, ErrSurvivors) {
			return fmt.Errorf("job %s: %w", e.Name(), err)
		} else if err != nil {
			logger.Warn("job not concluded", "dir", path, "error", err)
		}
	}
	return nil
}

// watch waits until the host is empty, and sees to it that it stays so.
func (d *hostDrain) watch(ctx context.Context) (Status, error) {
	for {
		// The last look is made all the same: it says what is left.
		status, online, err := statusOf(context.WithoutCancel(ctx), d.config)
		if ctx.Err() != nil {
			return status, d.interrupted(ctx, status)
		}
		if err == nil {
			if status.Drain == nil {
				return status, errors.New("the drain was cancelled meanwhile, or an operator has returned every device")
			}
			if d.done(status, online) {
				closed, err := d.close(ctx)
				if err != nil && ctx.Err() == nil {
					return status, err
				}
				if closed {
					d.conclude(status)
					return status, nil
				}
			}
		} else if !online {
			return status, err
		} else if time.Since(d.begun) > agentWait && time.Since(d.said) >= drainSay {
			d.said = time.Now()
			d.say("the agent does not say how it does: %v", err)
		}
		select {
		case <-time.After(drainPoll):
		case <-ctx.Done():
		}
	}
}

// done reports whether nothing more is worth a wait. It says what it waits for.
func (d *hostDrain) done(status Status, online bool) bool {
	if live := status.Live(); len(live) > 0 {
		d.idle = time.Time{}
		if time.Since(d.said) >= drainSay {
			d.said = time.Now()
			d.say("waiting for %s", jobList(live))
		}
	} else if d.idle.IsZero() {
		d.idle = time.Now()
	}
	untold, unsettled := 0, 0
	for _, device := range status.Devices {
		switch {
		case device.Drain == DrainUntold && device.Refused == "":
			untold++
		case device.Drain == DrainTold:
			unsettled++
		}
	}
	patient := online && time.Since(d.begun) < d.o.LeaderWait
	if untold > 0 && !patient && !d.told {
		d.told = true
		d.say("no leader has heard of it yet; the agent says it when it reaches one, and until then nothing begins here")
	}
	if d.idle.IsZero() {
		return false
	}
	if untold == 0 && unsettled == 0 && len(status.Jobs) == 0 {
		return true
	}
	if d.o.Kill && untold == 0 && len(status.Jobs) == 0 {
		return true // what may still come never begins
	}
	return !patient && (!online || time.Since(d.idle) >= d.o.LeaderWait)
}

// close has nothing begin that was placed before the drain. It reports false
// when a job is there all the same.
func (d *hostDrain) close(ctx context.Context) (closed bool, err error) {
	err = d.withAgent(ctx, func() error {
		answer, err := ask(ctx, d.dir, controlRequest{Do: doClose})
		closed = err == nil && !answer.Busy
		return err
	}, func() error {
		left, err := shimJobs(d.dir)
		if err != nil || len(left) > 0 {
			return err
		}
		book, err := openDrain(d.dir, d.config.Host)
		if err != nil {
			return err
		}
		closed, err = book.close(func(closing func()) bool { closing(); return true })
		return err
	})
	return closed, err
}

func (d *hostDrain) conclude(status Status) {
	var back []string
	const most = 4
	for _, device := range status.Devices {
		if device.Refused != "" {
			d.say("the leader does not take it for %s: %s", device.Name, device.Refused)
		}
		if device.Drain != "" {
			back = append(back, "rc clear "+model.DeviceID(status.Host, device.Name))
		}
	}
	if n := len(status.Jobs); n > 0 {
		d.say("%d ends of jobs are not told yet; the agent tells them when it reaches a leader", n)
	}
	if len(back) > most {
		back = []string{fmt.Sprintf("rc clear HOST:DEVICE, for each of %d devices", len(back))}
	}
	d.say("nothing runs on host %s any more; its devices come back with: %s", status.Host, strings.Join(back, "; "))
}

func (d *hostDrain) interrupted(ctx context.Context, status Status) error {
	why := "interrupted"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		why = "the time is up"
	}
	left := "no job is left, but an order may still be on its way"
	if live := status.Live(); len(live) > 0 {
		left = "left are " + jobList(live)
	}
	return fmt.Errorf("%w: %s; %s; the host stays drained: drain it again to go on waiting, with --kill to end its jobs, or with --cancel to take it back",
		ErrNotDrained, why, left)
}

func jobList(jobs []StatusJob) string {
	const most = 8
	var names []string
	for _, j := range jobs[:min(len(jobs), most)] {
		names = append(names, j.String())
	}
	if more := len(jobs) - most; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("%d: %s", len(jobs), strings.Join(names, "; "))
}

// CancelDrain takes a drain back, with or without an agent that runs, and
// returns its devices, sorted: those that the leader has out of the pool already
// an operator returns. None if the host is not drained.
func CancelDrain(ctx context.Context, config Config) (out []string, err error) {
	if _, err := os.Stat(config.DataDir); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	d := &hostDrain{config: config, dir: config.DataDir}
	err = d.withAgent(ctx, func() error {
		answer, err := ask(ctx, d.dir, controlRequest{Do: doCancel})
		out = answer.Out
		return err
	}, func() error {
		book, err := openDrain(d.dir, config.Host)
		if book == nil {
			return err
		}
		was, err := book.cancel()
		if was != nil {
			out = was.deviceNames()
		}
		return err
	})
	return out, err
}
