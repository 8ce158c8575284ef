package main

import (
	"os/exec"
	"time"

	"rcd/client"
	"rcd/model"
	"rcd/wire"
)

type holdCmd struct {
	Device  string        `arg:"" optional:"" help:"Device ID, host:name."`
	Select  string        `placeholder:"SEL" help:"Choose a device by its labels, e.g. vram>=40G,rack=r3."`
	TTL     time.Duration `name:"ttl" placeholder:"D" help:"How long, from when you have it, e.g. 2h; the hold ends then."`
	Reason  string        `placeholder:"TEXT" help:"What for; others see it while they wait."`
	As      string        `placeholder:"NAME" help:"Submitter, instead of RC_SUBMITTER."`
	Timeout time.Duration `placeholder:"D" help:"Give up if the device cannot be had within this time."`
	NoWait  bool          `help:"Fail at once if no device is free."`
	Detach  bool          `help:"Print the hold's ID and end; the hold goes its way, queued or held."`
	Session bool          `help:"Tie the hold to this rc: when rc is gone, or nobody hears it any more, the hold ends."`
	// SessionTimeout is 0 where it is not given.
	SessionTimeout time.Duration `placeholder:"D" help:"With --session: for how long the hold outlives the last word of rc, 15s to 1h (60s)."`
	Command        []string      `arg:"" optional:"" passthrough:"" help:"With --session: a command of this machine to run while the device is held, after --."`
}

// Help is shown by rc hold --help.
func (holdCmd) Help() string {
	return `Takes a device for a person instead of a job. Waits in the queue if it must, says until when you have the device, and stays until the hold ends: at its time, or with Ctrl-C, which releases it. A controller that dies in between changes nothing. Exits with 0 when the hold has ended, 130 after Ctrl-C, 124 after --timeout, 75 with --no-wait if no device is free.

With --detach nobody stays: the hold ends at its time, or with rc release.

With --session the hold lives no longer than rc: whichever way rc ends, killed or with its whole machine, the device is free --session-timeout after its last word at the latest, and at once after Ctrl-C, SIGTERM or the end of its terminal. --ttl stays the cap. rc says so when no controller has answered for half of that time, and a change of controllers costs none of it. A command, which runs here and finds the hold's ID in RC_HOLD_ID, is what the hold is for then: when it has ended, rc gives the device back and exits with its code; when the hold ends before it, it gets SIGTERM.

Examples:

    rc hold box:gpu0 --ttl 2h --reason profiling
    rc hold --select 'vram>=40G' --ttl 30m --reason 'driver test' --timeout 10m
    rc hold box:gpu0 --ttl 2h --reason profiling --detach
    rc hold box:gpu0 --ttl 8h --reason bisecting --session
    rc hold box:gpu0 --ttl 8h --reason bisecting --session --session-timeout 5m
    rc hold box:gpu0 --ttl 1h --reason tests --session -- sh -c 'rc exec $RC_HOLD_ID -- nvidia-smi'`
}

func (v *holdCmd) Run(a *app) error {
	refuse := func(text string) error { return &usageError{text: text, verb: "hold"} }
	cmd, err := v.command()
	if err != nil {
		return err
	}
	switch {
	case (v.Device == "") == (v.Select == ""):
		return refuse("name one device, host:name, or give --select SELECTOR")
	case v.TTL < time.Second:
		return refuse("say for how long, at least 1s: --ttl 2h")
	case firstOf(v.Reason) == "":
		return refuse("say what for, so that others who wait know: --reason TEXT")
	case v.Timeout < 0:
		return refuse("--timeout cannot be negative")
	case v.Detach && v.Timeout > 0:
		return refuse("--timeout needs somebody who waits; leave out --detach, or use rc wait --for scheduled --timeout after it")
	}
	session, err := v.session()
	if err != nil {
		return err
	}
	c, err := a.clientFor(session)
	if err != nil {
		return err
	}
	defer c.Close()
	if session > 0 {
		stop := a.alsoOnHangup()
		defer stop()
	}
	h := &holder{session: session, command: cmd, runner: runner{app: a, client: c, target: firstOf(v.Device, v.Select), timeout: v.Timeout,
		submitter: firstOf(v.As, a.conf.submitter), begun: time.Now()}}
	h.interrupted = h.giveBack
	return h.run(v.Detach, client.SubmitOptions{
		DeviceID: v.Device, Selector: v.Select, Submitter: h.submitter, Kind: kindHold, Reason: v.Reason,
		MaxRuntime: v.TTL, NoWait: v.NoWait, Session: session, RequestID: client.NewRequestID(),
	})
}

// kindHold is the kind of a job that is a lease for a person.
var kindHold = model.KindHold.String()

// holder takes one hold from its submit to its end.
type holder struct {
	runner
	device  string        // as told, "" before
	until   time.Time     // as told, zero before
	command *exec.Cmd     // of this machine, to run while the device is held; nil for none
	session time.Duration // for how long the hold outlives rc's last word; 0: it does not depend on rc
}

func (h *holder) run(detach bool, o client.SubmitOptions) error {
	if err := h.submit(o); err != nil {
		return err
	}
	if h.session > 0 {
		stop, err := h.keepSession()
		if err != nil {
			return err
		}
		defer stop()
	}
	if detach {
		return h.detach("Wait until you have it: rc wait --for scheduled %[1]s   End it: rc release %[1]s")
	}
	if err := h.waitInQueue(); err != nil {
		return err
	}
	until := h.look
	if h.command != nil {
		until = func(view *wire.JobView) bool { return h.look(view) || view.Job.State == "running" }
	}
	view, err := h.client.Watch(h.app.ctx, h.job.ID, until)
	switch {
	case err != nil && h.app.interrupted():
		return h.interrupted()
	case err != nil:
		h.app.say("%s", sentence(err))
		h.app.say("hold %s goes on without rc. Look: rc wait %s   End it: rc release %s", h.job.ID, h.job.ID, h.job.ID)
		return exitError(codeOf(err))
	case !client.Terminal(&view.Job):
		return h.during(h.command)
	}
	h.app.say("hold %s ended: %s", view.Job.ID, holdEnd(&view.Job))
	if code := endCode(&view.Job); code != exitOK {
		return exitError(code)
	}
	return nil
}

// look tells what is new of the hold, and reports whether it has ended.
func (h *holder) look(view *wire.JobView) bool {
	h.job = &view.Job
	if client.Terminal(h.job) {
		return true
	}
	if h.job.State != "queued" && h.job.DeviceID != h.device {
		h.device = h.job.DeviceID
		h.app.say("hold %s on %s", h.job.ID, h.device)
	}
	if until := latestEnd(h.job); !until.IsZero() && !until.Equal(h.until) {
		h.until = until
		h.app.say("%s is yours until %s. End it earlier: Ctrl-C, or rc release %s", h.device, localTime(until), h.job.ID)
	}
	return false
}

// holdEnd is why a hold has ended.
func holdEnd(job *wire.Job) string {
	if job.State == "killed" && job.KillReason != "" {
		return clean(job.KillReason)
	}
	return howItEnded(job)
}

// endCode is exitCode for jobs of any kind: a hold that was held and has ended,
// at its time or by somebody's word, has done all that a hold can do.
func endCode(job *wire.Job) int {
	if job.Kind == kindHold && job.State == "killed" && !neverPlaced(job) {
		return exitOK
	}
	return exitCode(job)
}

// giveBack ends rc hold after Ctrl-C: whoever wanted the device has gone.
func (h *holder) giveBack() error {
	h.release("interrupted; ")
	return exitError(exitInterrupted)
}
