package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"rcd/model"
	"rcd/wire"
)

const (
	// copySettle is how long a device that nobody holds is asked for again: it
	// takes a moment to be looked at after each job.
	copySettle = 10 * time.Second
	// copyEnd bounds the wait for the end of a job that was asked to end.
	copyEnd = 10 * time.Second
	// copyUnattended ends the job of a copy that nobody attends to any more; no
	// client looks for a controller for longer.
	copyUnattended = DefaultLongPatience

	// controlMark begins each line by which the far side speaks of the copy.
	controlMark = "@rc-cp "
	// maxControl bounds such a line, maxNoise what is kept of other ones.
	maxControl, maxNoise = 4 << 10, 1 << 10

	// copyName is the name that the job's script has; behind it stand the
	// direction and the key.
	copyName = "rc-cp"
	// copyScriptEnv holds the script, so that listings of jobs stay readable.
	copyScriptEnv = "RC_CP"
)

// exchange is one job of a copy.
type exchange struct {
	client *Client
	*CopyOptions
	script  string
	command []string // direction, key, and the rest of the script's arguments
	in      func(ctx context.Context, p []byte) (int, error)
	out     io.Writer
	// control takes what the far side says of the copy.
	control func(word string, rest []string) error

	job     *wire.Job
	hold    string
	busy    atomic.Bool  // the far side is at work, and not for us to move on
	movedAt atomic.Int64 // when something last moved, in Unix nanoseconds
	line    []byte       // the beginning of a line of the far side's stderr
	noise   []byte
	failed  *saidError
	done    bool // the far side has said its last word
}

// moved notes that the copy goes on.
func (x *exchange) moved() { x.movedAt.Store(time.Now().UnixNano()) }

// run takes the copy from the device to the far side's last word. Errors from
// before there was a job are no *CopyError.
func (x *exchange) run(ctx context.Context) error {
	if x.Silence <= 0 {
		x.Silence = DefaultCopySilence
	}
	x.progress(CopyProgress{Step: CopyStarting})
	if err := x.place(ctx); err != nil {
		return err
	}
	x.progress(CopyProgress{Step: CopyChecking})
	x.moved()
	x.busy.Store(true)
	err := x.attach(ctx)
	if err == nil && x.failed == nil && x.done {
		// The device is to be free when this returns.
		_, _ = x.client.WaitTerminal(ctx, x.job.ID, copyEnd)
		return nil
	}
	return x.fail(ctx, err)
}

func (x *exchange) attach(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		x.watch(ctx, cancel)
	}()
	defer func() {
		cancel(nil)
		<-watched
	}()
	_, _, err := x.client.Attach(ctx, x.job.ID, AttachOptions{
		Stdout: x.out, Stderr: x, In: x.in, Submitter: x.Submitter,
		Gap:       func(g Gap) error { return fmt.Errorf("%d bytes are missing: %s", g.To-g.From, g.Cause) },
		TakenOver: func() { cancel(errors.New("somebody else writes to the job now")) },
	})
	if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
		return cause
	}
	return err
}

// watch gives up once nothing has moved for too long.
func (x *exchange) watch(ctx context.Context, cancel context.CancelCauseFunc) {
	for {
		quiet := time.Since(time.Unix(0, x.movedAt.Load()))
		if quiet >= x.Silence {
			cancel(fmt.Errorf("%w for %s", ErrCopySilent, short(x.Silence)))
			return
		}
		if pause(ctx, x.Silence-quiet) != nil {
			return
		}
	}
}

// Write takes the far side's stderr: what it says of the copy, and what its
// programs say besides.
func (x *exchange) Write(p []byte) (int, error) {
	x.line = append(x.line, p...)
	for {
		line, rest, whole := bytes.Cut(x.line, []byte("\n"))
		if !whole {
			break
		}
		said, ours := bytes.CutPrefix(line, []byte(controlMark))
		if ours && len(line) < maxControl {
			if err := x.hear(strings.Fields(string(said))); err != nil {
				return 0, err
			}
		} else {
			x.keep(line)
		}
		x.line = rest
	}
	if len(x.line) > maxControl {
		x.keep(x.line)
		x.line = nil
	}
	return len(p), nil
}

func (x *exchange) keep(line []byte) {
	if x.noise = append(append(x.noise, line...), ' '); len(x.noise) > maxNoise {
		x.noise = x.noise[len(x.noise)-maxNoise:]
	}
}

func (x *exchange) hear(words []string) error {
	if len(words) == 0 {
		return nil
	}
	switch word, rest := words[0], words[1:]; word {
	case "fail":
		if x.failed == nil {
			x.failed = &saidError{text: strings.Join(rest, " ")}
		}
	case "absent":
		x.failed = &saidError{text: fmt.Sprintf("there is no %s on %s", x.Remote, x.DeviceID), is: ErrNotFound}
	case "busy":
		if x.busy.Load() {
			x.moved()
		}
	case "check":
		x.busy.Store(true)
		x.moved()
		x.progress(CopyProgress{Step: CopyEnding})
	default:
		return x.control(word, rest)
	}
	return nil
}

// fail ends the job if it has not ended, and says why the copy has failed.
func (x *exchange) fail(ctx context.Context, err error) error {
	interrupted := ctx.Err() != nil
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), copyEnd)
	defer cancel()
	var output *OutputError
	if errors.As(err, &output) {
		err = output.Err
	}
	_ = x.client.Kill(ctx, x.job.ID, x.Submitter) // it may have ended
	end, waitErr := x.client.WaitTerminal(ctx, x.job.ID, 0)
	failed := &CopyError{JobID: x.job.ID, Err: err, Running: waitErr != nil}
	switch {
	case interrupted:
	case x.failed != nil:
		if noise := strings.TrimSpace(string(x.noise)); noise != "" {
			x.failed.text += " (" + noise + ")"
		}
		x.failed.text = printable(x.failed.text)
		failed.Err = x.failed
	case err == nil && end != nil:
		failed.Err = x.endedEarly(end)
	case err == nil:
		failed.Err = waitErr
	}
	return failed
}

// endedEarly says that the job has ended before the far side's last word.
func (x *exchange) endedEarly(end *wire.Job) error {
	why := end.State
	if end.KillReason != "" {
		why += ": " + end.KillReason
	}
	if noise := strings.TrimSpace(string(x.noise)); noise != "" {
		why += " (" + noise + ")"
	}
	if end.Origin == model.OriginUser.String() {
		why += "; another rc cp of the same, started after this one, ends it, too"
	}
	return fmt.Errorf("its job %s has ended before the copy: %s", x.job.ID, printable(why))
}

// place gets the job its device, or room inside a hold.
func (x *exchange) place(ctx context.Context) error {
	for begun := time.Now(); ; {
		held, err := x.look(ctx)
		if err != nil {
			return err
		}
		err = x.submit(ctx)
		if !errors.Is(err, ErrNoDevice) {
			return err
		}
		if time.Since(begun) > copySettle {
			return held
		}
		if err := pause(ctx, pollEvery/2); err != nil {
			return err
		}
	}
}

// look finds out who has the device: a hold of the submitter's to run inside, an
// earlier try of this copy, which is ended, or somebody to wait for, which is
// an error. held is that error for a device that nobody has.
func (x *exchange) look(ctx context.Context) (held *HeldError, err error) {
	x.hold = ""
	d, err := x.client.Describe(ctx, x.DeviceID)
	if err != nil {
		return nil, err
	}
	held = &HeldError{DeviceID: x.DeviceID, State: d.Device.State}
	if d.JobID == "" {
		if d.Device.State == model.DeviceUnhealthy.String() {
			return held, held
		}
		return held, nil
	}
	holder, err := x.client.Job(ctx, d.JobID)
	switch {
	case errors.Is(err, ErrNotFound):
		return held, nil
	case err != nil:
		return nil, err
	case Terminal(holder):
		return held, nil
	}
	mine := holder.Submitter == x.Submitter
	switch {
	case mine && holder.Kind == kindHold:
		x.hold = holder.ID
		return held, x.endEarlier(ctx)
	case mine && x.isTry(holder):
		return held, x.endTry(ctx, holder)
	}
	return nil, &HeldError{DeviceID: x.DeviceID, JobID: holder.ID, Kind: holder.Kind, Holder: holder.Submitter, Mine: mine}
}

// kindHold is the kind of a job that is a lease for a person.
var kindHold = model.KindHold.String()

// endEarlier ends earlier tries of this copy inside the hold, which hold nobody
// up, but may still write to the same file.
func (x *exchange) endEarlier(ctx context.Context) error {
	for _, state := range []model.JobState{model.JobAssigned, model.JobRunning} {
		jobs, err := x.client.Jobs(ctx, JobsOptions{Device: x.DeviceID, Submitter: x.Submitter, State: state.String(), Limit: 200})
		if err != nil {
			return err
		}
		for i := range jobs {
			if x.isTry(&jobs[i]) {
				if err := x.endTry(ctx, &jobs[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// isTry reports whether a job is one of the same copy.
func (x *exchange) isTry(job *wire.Job) bool {
	c := job.Command
	return len(c) > 5 && c[3] == copyName && c[4] == x.command[0] && c[5] == x.command[1]
}

func (x *exchange) endTry(ctx context.Context, job *wire.Job) error {
	x.note("job %s, an earlier try of this copy, is still there and is ended", job.ID)
	if err := x.client.Kill(ctx, job.ID, x.Submitter); err != nil && !errors.Is(err, ErrNotCancellable) {
		return err
	}
	_, err := x.client.WaitTerminal(ctx, job.ID, 3*copyEnd)
	return err
}

// submit sets x.job.
func (x *exchange) submit(ctx context.Context) error {
	o := SubmitOptions{
		DeviceID: x.DeviceID, Submitter: x.Submitter, NoWait: true, Stdio: model.StdioPipe.String(), RequestID: NewRequestID(),
		Command: append([]string{"sh", "-c", `eval "$` + copyScriptEnv + `"`, copyName}, x.command...),
		Env:     map[string]string{copyScriptEnv: x.script, model.DetachTimeoutEnv: copyUnattended.String()},
	}
	if x.hold != "" {
		o.DeviceID, o.Hold, o.NoWait = "", x.hold, false // nothing waits inside a hold
	}
	job, err := x.client.Submit(ctx, o)
	var outage *OutageError
	if err != nil && ctx.Err() != nil && (!errors.As(err, &outage) || outage.Unknown) {
		// It may exist, and nobody knows its ID: the same request again tells.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), copyEnd)
		defer cancel()
		if job, again := x.client.Submit(ctx, o); again == nil {
			x.job = job
			return x.fail(ctx, err)
		}
	}
	x.job = job
	return err
}
