package client_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rcd/client"
	"rcd/jepsen/onehost"
)

// partOf is the file that collects what arrives for a copy up, as an earlier
// copy of the same named it.
func (b *between) partOf(r client.CopyResult) string { return b.there(b.host.Job(r.JobID).Command[11]) }

func TestOnlyWhatIsMissingTravelsAgainAndOnlyIfTheRestIsTheSame(t *testing.T) {
	all := hosts(t)
	all["this one"] = os.Getenv("PATH")
	for name, path := range all {
		t.Run(name, func(t *testing.T) {
			b := newBetween(t)
			b.host.Path = path
			text := noise(500_000)
			write(t, b.here+"/f", text, 0o600)
			first := b.up("f", "g")
			for _, tt := range []struct {
				there string
				from  int64
			}{
				{text[:300_000], 300_000},
				{text, 500_000},
				{text + "more", 0},
				{"X" + text[1:300_000], 0},
				{text[1:300_000], 0},
				{"", 0},
			} {
				before := b.host.Sent()
				write(t, b.partOf(first), tt.there, 0o600)
				r := b.up("f", "g")
				sent := b.host.Sent() - before
				if r.ResumedFrom != tt.from || r.Bytes != 500_000 || sent < r.Bytes-tt.from || sent > r.Bytes-tt.from+200 {
					t.Errorf("%d bytes were there: %+v, %d were sent", len(tt.there), r, sent)
				}
				if got, _ := os.ReadFile(b.there("g")); string(got) != text {
					t.Fatalf("%d bytes have come of it", len(got))
				}
			}

			// The other way: a copy that its part's name is learnt from.
			part := filepath.Join(b.here, strings.Replace(filepath.Base(b.partOf(first)), ".g.", ".h.", 1))
			part = strings.Replace(part, b.host.Job(first.JobID).Command[5], b.host.Job(b.down("g", "h").JobID).Command[5], 1)
			for _, tt := range []struct {
				here string
				from int64
			}{{text[:300_000], 300_000}, {text, 500_000}, {text + "more", 0}, {"X" + text[1:300_000], 0}} {
				write(t, part, tt.here, 0o600)
				if r := b.down("g", "h"); r.ResumedFrom != tt.from || r.Bytes != 500_000 {
					t.Errorf("%d bytes were here: %+v", len(tt.here), r)
				}
				if got, _ := os.ReadFile(b.here + "/h"); string(got) != text {
					t.Fatalf("%d bytes have come of it", len(got))
				}
			}
		})
	}
}

// overwrite changes a file that is being read, at no moment of which it is
// shorter.
func overwrite(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Error(err)
	}
}

func TestASourceThatChangesMeanwhileIsNotTakenForWhole(t *testing.T) {
	b := newBetween(t)
	text := noise(300_000)
	write(t, b.here+"/f", text, 0o600)
	write(t, b.there("g"), "old", 0o600)
	o := b.options(b.here+"/f", "g")
	o.Progress = func(p client.CopyProgress) {
		if p.Step == client.CopyMoving && p.Done < 100_000 {
			overwrite(t, b.here+"/f", strings.Repeat("x", len(text)))
		}
	}
	_, err := b.c.CopyTo(t.Context(), o)
	var failed *client.CopyError
	if !errors.As(err, &failed) || failed.Kept != "" || !strings.Contains(err.Error(), "changed meanwhile") {
		t.Errorf("%v, %+v", err, failed)
	}
	write(t, b.there("s"), text, 0o600)
	o = b.options(b.here+"/s", "s")
	o.Progress = func(p client.CopyProgress) {
		if p.Step == client.CopyMoving && p.Done < 100_000 {
			write(t, b.there("s"), text[1:], 0o600)
		}
	}
	if _, err = b.c.CopyFrom(t.Context(), o); err == nil || !strings.Contains(err.Error(), "changed meanwhile") {
		// What was read before may all have been sent by then.
		if got, _ := os.ReadFile(b.here + "/s"); err != nil || string(got) != text {
			t.Error(err)
		}
	}
	if got, _ := os.ReadFile(b.there("g")); string(got) != "old" {
		t.Errorf("what was there is now %d bytes", len(got))
	}
}

func TestADeviceOfSomebodyElseIsNotWaitedFor(t *testing.T) {
	b := newBetween(t)
	write(t, b.here+"/f", "f", 0o600)
	for _, tt := range []struct{ kind, who, says string }{
		{"job", "bob", "box:gpu0 is held by bob with job j-1"},
		{"hold", "bob", "box:gpu0 is held by bob with hold j-2"},
		{"job", "ann", "box:gpu0 runs your own job j-3"},
	} {
		b.host.Hold(tt.kind, tt.who)
		_, err := b.c.CopyTo(t.Context(), b.options(b.here+"/f", "x"))
		if !errors.Is(err, client.ErrNoDevice) || errors.Is(err, client.ErrDeviceHeldByAnother) != (tt.who == "bob") || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%+v: %v", tt, err)
		}
		b.host.Release()
	}
	b.up("f", "x")
}

func TestACopyToAHeldDeviceRunsInsideTheHold(t *testing.T) {
	b := newBetween(t)
	write(t, b.here+"/f", "f", 0o600)
	hold := b.host.Hold("hold", "ann")
	if r := b.up("f", "x"); r.Hold != hold || b.host.Job(r.JobID).Hold != hold {
		t.Errorf("%+v", r)
	}
	if r := b.down("x", "g"); r.Hold != hold {
		t.Errorf("%+v", r)
	}
	if j := b.host.Job(hold); j.State != "running" {
		t.Errorf("the hold is %s", j.State)
	}
}

// An rc that was killed leaves its job, until it has gone unattended for long
// enough.
func TestAnEarlierTryOfTheSameCopyMakesRoom(t *testing.T) {
	b := newBetween(t)
	write(t, b.here+"/f", "f", 0o600)
	first := b.host.Job(b.up("f", "x").JobID)
	b.host.Instead = func(command []string) []string {
		if strings.HasPrefix(command[2], "eval") {
			return command
		}
		return []string{"sleep", "600"}
	}
	leave := func(hold string, change func([]string)) string {
		command := append([]string(nil), first.Command...)
		command[2] = "sleep"
		change(command)
		o := client.SubmitOptions{DeviceID: onehost.Device, Hold: hold, Submitter: "ann", Command: command, Stdio: "pipe", NoWait: hold == ""}
		if hold != "" {
			o.DeviceID = ""
		}
		job, err := b.c.Submit(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		return job.ID
	}
	other := func(command []string) { command[5] = "another" }
	left := leave("", func([]string) {})
	b.up("f", "x")
	if j := b.host.Job(left); j.State != "killed" || len(b.notes) != 1 || !strings.Contains(b.notes[0], "job "+left+", an earlier try") {
		t.Errorf("%s is %s, %q", left, j.State, b.notes)
	}
	left = leave("", other)
	if _, err := b.c.CopyTo(t.Context(), b.options(b.here+"/f", "x")); !errors.Is(err, client.ErrNoDevice) {
		t.Errorf("beside another copy: %v", err)
	}
	if err := b.c.Kill(t.Context(), left, "ann"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.c.WaitTerminal(t.Context(), left, 0); err != nil {
		t.Fatal(err)
	}
	hold := b.host.Hold("hold", "ann")
	left, stays := leave(hold, func([]string) {}), leave(hold, other)
	b.up("f", "x")
	if b.host.Job(left).State != "killed" || b.host.Job(stays).State != "running" {
		t.Errorf("inside the hold the same is %s, another %s", b.host.Job(left).State, b.host.Job(stays).State)
	}
}

func TestOneCopyAtATimeWritesToAName(t *testing.T) {
	b := newBetween(t)
	write(t, b.there("f"), noise(300_000), 0o600)
	o := b.options(b.here+"/f", "f")
	var second error
	o.Progress = func(p client.CopyProgress) {
		if p.Step == client.CopyMoving && second == nil {
			_, second = b.c.CopyFrom(t.Context(), b.options(b.here+"/f", "f"))
		}
	}
	if _, err := b.c.CopyFrom(t.Context(), o); err != nil || !errors.Is(second, client.ErrCopyTarget) {
		t.Errorf("%v, beside it %v", err, second)
	}
}

func TestAnInterruptedCopyEndsItsJobAndSaysWhatIsKept(t *testing.T) {
	b := newBetween(t)
	write(t, b.here+"/f", noise(8_000_000), 0o600)
	ctx, stop := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	o := b.options(b.here+"/f", "g")
	o.Progress = func(p client.CopyProgress) {
		if p.Step == client.CopyMoving && p.Done > 4_000_000 {
			stop(gone)
		}
	}
	_, err := b.c.CopyTo(ctx, o)
	var failed *client.CopyError
	if !errors.As(err, &failed) || !errors.Is(err, gone) || failed.Running || !strings.HasPrefix(failed.Kept, "box:gpu0:.g.rc-cp-") {
		t.Fatalf("%v, %+v", err, failed)
	}
	if running := b.host.Running(); running != nil {
		t.Errorf("%q still run", running)
	}
	kept, err := os.Stat(b.there(strings.TrimPrefix(failed.Kept, "box:gpu0:")))
	if err != nil {
		t.Fatal(err)
	}
	// A window and what pipes hold were on their way.
	if r := b.up("f", "g"); r.ResumedFrom != kept.Size() || r.ResumedFrom < 2_500_000 {
		t.Errorf("%d bytes are kept, %+v", kept.Size(), r)
	}
}

func TestACopyThatStandsStillIsGivenUp(t *testing.T) {
	b := newBetween(t)
	b.host.Stalled = true
	write(t, b.here+"/f", "f", 0o600)
	o := b.options(b.here+"/f", "g")
	o.Silence = time.Second
	begun := time.Now()
	_, err := b.c.CopyTo(t.Context(), o)
	var failed *client.CopyError
	if !errors.Is(err, client.ErrCopySilent) || !errors.As(err, &failed) || failed.Running || time.Since(begun) < time.Second {
		t.Errorf("%v after %v, %+v", err, time.Since(begun), failed)
	}
	if running := b.host.Running(); running != nil {
		t.Errorf("%q still run", running)
	}
}
