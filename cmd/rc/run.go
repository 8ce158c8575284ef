package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"time"

	"rcd/client"
	"rcd/model"
	"rcd/wire"
)

const (
	// lastLook bounds what rc still asks for after Ctrl-C.
	lastLook = 5 * time.Second
	// endWait bounds the wait for the job's end once its output has ended,
	// which comes with the end or after it.
	endWait = 5 * time.Minute
	// cancelWait is how long a cancelled job may take to show its end.
	cancelWait = 10 * time.Second
)

type runCmd struct {
	Device      string        `short:"d" placeholder:"DEV" help:"Device ID, host:name."`
	Select      string        `placeholder:"SEL" help:"Choose a device by its labels, e.g. vram>=40G,rack=r3."`
	In          string        `placeholder:"HOLD" help:"Run inside a hold of yours, beside what runs there: its ID, or its device."`
	Explain     bool          `help:"With --select: say what would match and when it would start, and submit nothing."`
	Cwd         string        `placeholder:"DIR" help:"Working directory on the device host."`
	Env         []string      `placeholder:"K=V" sep:"none" help:"Set a variable for the job; may be repeated."`
	As          string        `placeholder:"NAME" help:"Submitter, instead of RC_SUBMITTER."`
	Priority    priority      `default:"0" help:"-10 to 10; higher runs sooner."`
	MaxRuntime  time.Duration `placeholder:"D" help:"End the job after this time, e.g. 90m."`
	IdleTimeout time.Duration `placeholder:"D" help:"End the job after this time without output."`
	GraceSignal graceSignal   `placeholder:"S" help:"Warn the job by a signal before its runtime limit, e.g. USR1@2m; without a value TERM@30s."`
	Timeout     time.Duration `placeholder:"D" help:"Cancel the job if it is still queued after this time; with --in, give up if the hold is."`
	NoWait      bool          `help:"Fail at once if no device is free; with --in, if the hold is still queued."`
	Merge       bool          `help:"Print the job's stderr on stdout, too, in the order it came."`
	Detach      bool          `help:"Print the job's ID and end; the job goes its way, queued or running."`
	RequestID   string        `placeholder:"ID" help:"Name this submit: another run under the same name joins the same job."`
	TTY         bool          `help:"Run on a terminal that is joined to this one; without a command, a shell."`
	// DetachTimeout is as model.DetachTimeout reads it.
	DetachTimeout string   `placeholder:"D" help:"With --tty: end the job when nobody has been attached for this time (10m); 0 is never."`
	Command       []string `arg:"" optional:"" passthrough:"" help:"Command and arguments, after --."`

	exec    bool // it is rc exec: it has rc's stdin and ends with rc
	noStdin bool
}

// verb is what the user has typed.
func (v *runCmd) verb() string {
	if v.exec {
		return "exec"
	}
	return "run"
}

// Help is shown by rc run --help.
func (runCmd) Help() string {
	return `Waits in the queue if it must, and says why and until when at most; prints what the job prints (stdout and stderr each to its own) and exits with the job's exit code, or with 1 if the job ended without one. A controller that dies in between costs nothing but a line on stderr. Ctrl-C cancels a queued job; a running one goes on, and rc says how to look at it again. With --tty every key goes to the job, Ctrl-C too; type ~. at the beginning of a line to leave it running (~~ is a ~).

With --in the job runs on the device of a hold of yours, at once, as often as wanted, and ends with the hold at the latest; it is a job like any other, with output that is kept. See also rc exec.

Examples:

    rc run -d box:gpu0 -- python train.py
    rc run --select 'vram>=40G' --max-runtime 2h --env SEED=1 -- ./bench --all
    rc run -d box:gpu0 --max-runtime 2h --grace-signal=USR1@5m -- python train.py
    rc run -d box:gpu0 --tty
    rc run -d box:gpu0 --tty --detach-timeout 2h -- python
    rc run --in j-48213 -- python train.py
    rc run --in j-48213 --detach -- python train.py
    rc run --select rack=r3 --explain
    rc run --select 'vram>=40G' --max-runtime 12h --explain`
}

// check refuses what cannot be meant before anybody is asked, and returns the
// job's environment.
func (v *runCmd) check() (map[string]string, error) {
	refuse := func(format string, args ...any) (map[string]string, error) {
		return nil, &usageError{text: fmt.Sprintf(format, args...), verb: v.verb()}
	}
	switch {
	case v.In != "" && (v.Device != "" || v.Select != "" || v.Explain):
		return refuse("a job in a hold has the hold's device; leave out --device, --select and --explain, or --in")
	case v.In != "" && v.Priority != 0:
		return refuse("--priority is for the queue, and a job in a hold does not queue")
	case v.Device != "" && v.Select != "":
		return refuse("give --device or --select, not both")
	case v.Device == "" && v.Select == "" && v.In == "":
		return refuse("say where: --device host:name, or --select SELECTOR")
	case v.Explain && v.Select == "":
		return refuse("--explain needs --select")
	case v.DetachTimeout != "" && !v.TTY:
		return refuse("--detach-timeout needs --tty")
	case len(v.Command) == 0 && v.exec && !v.TTY:
		return refuse("no command; put it after --, or give --tty for a shell")
	case len(v.Command) == 0 && !v.Explain && !v.TTY:
		return refuse("no command; put it after --")
	case v.noStdin && v.TTY:
		return refuse("--tty is there to type; leave out --no-stdin")
	case v.Timeout < 0:
		return refuse("--timeout cannot be negative")
	case v.Detach && v.Timeout > 0:
		return refuse("--timeout needs somebody who waits; leave out --detach, or use rc wait --for scheduled --timeout after it")
	}
	for flag, d := range map[string]time.Duration{"--max-runtime": v.MaxRuntime, "--idle-timeout": v.IdleTimeout} {
		if d != 0 && d < time.Second {
			return refuse("%s must be at least 1s", flag)
		}
	}
	if _, err := model.DetachTimeout(v.DetachTimeout); err != nil {
		return refuse("--detach-timeout: %v", err)
	}
	env := map[string]string{}
	for _, pair := range v.Env {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return refuse("--env %q is not like KEY=VALUE", pair)
		}
		env[key] = value
	}
	if v.GraceSignal != "" {
		env[model.GraceSignalEnv] = string(v.GraceSignal)
	}
	return env, nil
}

func (v *runCmd) Run(a *app) error {
	if len(v.Command) > 0 && strings.HasPrefix(v.Command[0], "-") {
		if v.Command[0] != "--" {
			return &usageError{text: fmt.Sprintf("unknown flag %s; a command that begins with - goes after --", v.Command[0]), verb: v.verb()}
		}
		v.Command = v.Command[1:]
	}
	env, err := v.check()
	if err != nil {
		return err
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	if v.Explain {
		return v.explain(a, c)
	}
	stdio := ""
	switch {
	case v.TTY:
		if err := v.onTerminal(a, env); err != nil {
			return err
		}
		stdio = stdioTTY
	case v.exec && !v.noStdin && stdinHasData():
		stdio = stdioPipe
	}
	r := &runner{app: a, client: c, stdio: stdio, detachAfter: v.DetachTimeout, target: firstOf(v.Device, v.Select), timeout: v.Timeout, merge: v.Merge,
		submitter: firstOf(v.As, a.conf.submitter), begun: time.Now(), exec: v.exec}
	r.interrupted = r.cancelOrDetach
	if v.RequestID == "" {
		v.RequestID = client.NewRequestID()
	}
	o := client.SubmitOptions{
		DeviceID: v.Device, Selector: v.Select, Command: v.Command, Cwd: v.Cwd, Env: env,
		Submitter: r.submitter, Priority: int(v.Priority), MaxRuntime: v.MaxRuntime, IdleTimeout: v.IdleTimeout,
		NoWait: v.NoWait, Stdio: stdio, RequestID: v.RequestID,
	}
	if v.In != "" {
		o.NoWait = false // of the hold, which is seen to before
		return r.runInside(v.In, v.NoWait, v.Detach, o)
	}
	return r.run(v.Detach, o)
}

// What a job's standard streams may be joined to, beside nothing.
const (
	stdioTTY  = "tty"
	stdioPipe = "pipe"
)

// runner takes one job from its submit to its exit code.
type runner struct {
	app         *app
	client      *client.Client
	submitter   string
	target      string        // what the job was submitted to, in words
	timeout     time.Duration // most time in the queue, 0: no limit
	merge       bool          // the job's stderr goes to stdout, too
	stdio       string        // "", or what the job's stdin is joined to
	hold        string        // that the job runs inside, "" for none
	exec        bool          // the job ends with rc, and rc talks only when it must
	detachAfter string        // for how long that may be unattended, as it was asked for
	begun       time.Time
	job         *wire.Job // as last seen, nil before the submit was answered
	// interrupted ends rc after Ctrl-C, once there is a job.
	interrupted func() error
}

// submit sets r.job.
func (r *runner) submit(o client.SubmitOptions) error {
	ctx := r.app.ctx
	if r.timeout > 0 && r.hold == "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.begun.Add(r.timeout))
		defer cancel()
	}
	job, err := r.client.Submit(ctx, o)
	switch {
	case err != nil && r.app.interrupted():
		return r.takeBack(o, err, "interrupted", exitInterrupted)
	case errors.Is(err, client.ErrUnreachable) && ctx.Err() != nil:
		return r.takeBack(o, err, "no controller took it within "+r.timeout.String(), exitDeadline)
	case errors.Is(err, client.ErrNoDevice):
		return busyError(r.target + " is busy and could not be queued; try again later, or leave out --no-wait to queue")
	case err != nil:
		return err
	}
	r.job = job
	return nil
}

func (r *runner) run(detach bool, o client.SubmitOptions) error {
	if err := r.submit(o); err != nil {
		return err
	}
	if detach {
		return r.detach("Look: rc logs -f %[1]s   Wait: rc wait %[1]s   End it: rc kill %[1]s")
	}
	if err := r.waitInQueue(); err != nil {
		return err
	}
	if r.job.StartedAt == nil && client.Terminal(r.job) {
		return r.exit() // it never ran, so there is nothing to print
	}
	if !r.exec {
		r.app.say("job %s on %s", r.job.ID, r.job.DeviceID)
	}
	show := r.follow
	switch r.stdio {
	case stdioTTY:
		show = r.attach
	case stdioPipe:
		show = r.pipe
	}
	if err := show(); err != nil {
		return err
	}
	job, err := r.client.WaitTerminal(r.app.ctx, r.job.ID, endWait)
	switch {
	case err != nil && r.app.interrupted():
		return r.interrupted()
	case err != nil:
		r.app.say("%s", sentence(err))
		return r.leave(err, "its end is not known yet")
	}
	r.job = job
	return r.exit()
}

// waitInQueue returns once the job has left the queue; r.job is then what it
// has become.
func (r *runner) waitInQueue() error {
	if r.job.State != "queued" {
		return nil
	}
	ctx := r.app.ctx
	if r.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, r.begun.Add(r.timeout))
		defer cancel()
	}
	talk := queueTalk{app: r.app, target: r.target}
	job, err := r.client.WatchQueued(ctx, r.job.ID, talk.look)
	switch {
	case err == nil:
		r.job = job
		return nil
	case r.app.interrupted():
		return r.interrupted()
	case ctx.Err() != nil:
		return r.timedOut()
	}
	r.app.say("%s", sentence(err))
	return r.leave(err, "it may still be queued, or run by now")
}

// stream prints the job's output to its end.
func (r *runner) stream() (client.StreamEnd, error) {
	stderr := io.Writer(r.app.stderr)
	if r.merge {
		stderr = r.app.stdout
	}
	_, end, err := r.client.Stream(r.app.ctx, r.job.ID, client.StreamOptions{
		Stdout: r.app.stdout, Stderr: stderr,
		Gap: r.gap,
	})
	switch {
	case err == nil && !end.Complete:
		r.app.say("the output of job %s is incomplete: %s", r.job.ID, end.Reason)
	case err != nil && r.app.interrupted():
		return end, r.interrupted()
	case err != nil && brokenPipe(err):
		return end, r.unread(err)
	}
	return end, err
}

func (r *runner) gap(g client.Gap) error {
	r.app.say("%d bytes of output are missing (offset %d to %d): %s", g.To-g.From, g.From, g.To, g.Cause)
	return nil
}

// follow is stream for whom the job's end matters: that the way to its output
// was lost for good is said, and does not decide how rc exits.
func (r *runner) follow() error {
	_, err := r.stream()
	if err == nil || errors.As(err, new(exitError)) {
		return err
	}
	r.app.say("log stream ended: %s", sentence(err))
	return nil
}

// exit ends rc as the job ended.
func (r *runner) exit() error {
	job := r.job
	switch {
	case job.KillReason != "":
		r.app.say("job %s: %s: %s", job.ID, job.State, clean(job.KillReason))
	case job.ExitCode == nil:
		r.app.say("job %s: %s", job.ID, job.State)
	}
	if code := exitCode(job); code != exitOK {
		return exitError(code)
	}
	return nil
}

// leave ends rc while the job goes on, with the exit code of err.
func (r *runner) leave(err error, why string) error {
	r.app.say("job %s goes on without rc: %s. Look: %s   End it: rc kill %s", r.job.ID, why, r.look(), r.job.ID)
	return exitError(codeOf(err))
}

// unread ends rc when nobody reads what the job prints here any more.
func (r *runner) unread(err error) error {
	if r.exec {
		return r.endExec("nobody reads its output here any more", codeOf(err))
	}
	return r.leave(err, "nobody reads its output here any more")
}

// detach ends rc once the job is submitted, with its ID for a script and what
// to do with it for a person.
func (r *runner) detach(next string) error {
	where := "is " + r.job.State + ", for " + r.target
	if r.job.State != "queued" {
		where = "on " + r.job.DeviceID
	}
	if _, err := fmt.Fprintln(r.app.stdout, r.job.ID); err != nil {
		return r.leave(err, "its ID could not be printed")
	}
	r.app.say("job %s %s. "+next, r.job.ID, where)
	return nil
}

// brokenPipe reports whether whoever read rc's output is gone.
func brokenPipe(err error) bool { return errors.Is(err, syscall.EPIPE) }
