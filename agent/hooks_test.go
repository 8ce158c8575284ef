package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"rcd/agent/proc"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// never is a linger that no test lives to see.
const never = time.Hour

// hooked is a configuration whose hooks write down what they are run for.
type hooked struct {
	Config
	dir string // of the scripts and all that they write
}

// newHooked returns one with both hooks on gpu0 and gpu1. acquire and release
// are added to their scripts.
func newHooked(t *testing.T, linger time.Duration, acquire, release string) hooked {
	b := hooked{Config: testConfig(dataDir(t), newControl(t)), dir: t.TempDir()}
	const note = `echo "$RC_EVENT $RC_DEVICE $RC_JOB_ID $RC_SUBMITTER" >> `
	for i, d := range b.Devices {
		b.Devices[i].Hooks = Hooks{
			OnAcquire: executableFile(t, filepath.Join(b.dir, "acquire-"+d.Name), "cd "+b.dir+"\n"+note+d.Name+"\n"+acquire),
			OnRelease: executableFile(t, filepath.Join(b.dir, "release-"+d.Name), "cd "+b.dir+"\n"+note+d.Name+"\n"+release),
			Timeout:   time.Minute, Linger: linger,
		}
	}
	return b
}

// ran returns what the hooks of a device were run for so far, one a line.
func (b hooked) ran(device string) string {
	data, _ := os.ReadFile(filepath.Join(b.dir, device))
	return string(data)
}

func (b hooked) touch(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// untilThere is a script's wait for a file.
func untilThere(name string) string { return "until [ -e " + name + " ]; do sleep 0.01; done" }

func TestOnAcquireComesBeforeTheJobAndOnReleaseAfterTheLinger(t *testing.T) {
	b := newHooked(t, 10*time.Millisecond, "touch ready", "rm ready")
	a := newTestAgent(t, b.Config)
	job := sh("[ -e " + b.dir + "/ready ]")
	if o := a.runJob(t, 1, job...); *o.ExitCode != 0 || o.Survivors != "" {
		t.Errorf("outcome %+v", o)
	}
	first := "acquire box:gpu0 j-1 ann\nrelease box:gpu0 j-1 ann\n"
	eventually(t, "released", func() bool { return b.ran("gpu0") == first })
	if o := a.runJob(t, 2, job...); *o.ExitCode != 0 {
		t.Errorf("outcome %+v", o)
	}
	eventually(t, "released again", func() bool { return b.ran("gpu0") == first+strings.ReplaceAll(first, "j-1", "j-2") })
	if got := b.ran("gpu1"); got != "" {
		t.Errorf("hooks of a device without a job ran: %q", got)
	}
}

func TestAJobWithinTheLingerFindsTheDeviceHeld(t *testing.T) {
	b := newHooked(t, never, "", "")
	c := controlOf(t, &b.Config)
	r := startAgent(t, b.Config)
	start := "release box:gpu0  \n"
	for n := uint64(1); n <= 3; n++ {
		c.want(n, nil, "true")
		c.outcome(t, n)
	}
	if got := b.ran("gpu0"); got != start+"acquire box:gpu0 j-1 ann\n" {
		t.Errorf("ran %q", got)
	}
	// An agent that stops does not wait for the linger, and tells of the last job.
	r.stop()
	if got := b.ran("gpu0"); got != start+"acquire box:gpu0 j-1 ann\nrelease box:gpu0 j-3 ann\n" {
		t.Errorf("ran %q", got)
	}
	if got := b.ran("gpu1"); got != "release box:gpu1  \n" {
		t.Errorf("a device that was not in use: %q", got)
	}
}

func TestAFailedOnAcquireFailsTheJobAndTakesTheDeviceOut(t *testing.T) {
	b := newHooked(t, 0, "echo clocks; printf '%05000d' 0; echo; echo cannot set clocks >&2; exit 9", "")
	a := newTestAgent(t, b.Config)
	o := a.runJob(t, 1, "touch", b.dir+"/started")
	if o.End != uint8(command.EndStartFailed) || *o.ExitCode != -1 || o.Origin != uint8(model.OriginDevice) {
		t.Errorf("outcome %+v", o)
	}
	const table = 1024 // bytes of a reason that the lease table keeps
	for text, prefix := range map[string]string{o.Reason: "start: on_acquire of gpu0 exited 9: 0", o.Survivors: "on_acquire of gpu0 exited 9: 0"} {
		if !strings.HasPrefix(text, prefix) || !strings.HasSuffix(text, "\ncannot set clocks") || len(text) > table || len(text) < table-100 {
			t.Errorf("%d bytes: %q", len(text), text)
		}
	}
	if exists(b.dir, "started") {
		t.Error("the job ran")
	}
	// There is no release, and the next job, once an operator has looked at the
	// device, acquires anew.
	a.Acked(wire.OutcomeAck{Job: 1, Lease: 1})
	executableFile(t, b.Devices[0].Hooks.OnAcquire, "echo acquired >> "+b.dir+"/gpu0")
	if o := a.runJob(t, 2, "true"); *o.ExitCode != 0 {
		t.Errorf("outcome %+v", o)
	}
	eventually(t, "the second job's release", func() bool {
		return b.ran("gpu0") == "acquire box:gpu0 j-1 ann\nacquired\nrelease box:gpu0 j-2 ann\n"
	})
}

func TestAHookThatTakesTooLongFailsTheJob(t *testing.T) {
	b := newHooked(t, never, "exec sleep 600", "")
	b.Devices[0].Hooks.Timeout = 400 * time.Millisecond
	a := newTestAgent(t, b.Config)
	if o := a.runJob(t, 1, "true"); o.Survivors != "on_acquire of gpu0 timed out after 400ms" {
		t.Errorf("outcome %+v", o)
	}
}

func TestAFailedOnReleaseIsOnlyLogged(t *testing.T) {
	b := newHooked(t, 0, "", "exit 3")
	a := newTestAgent(t, b.Config)
	for n := uint64(1); n <= 2; n++ {
		if o := a.runJob(t, n, "true"); *o.ExitCode != 0 || o.Survivors != "" {
			t.Errorf("outcome %+v", o)
		}
		eventually(t, "released", func() bool { return strings.Count(b.ran("gpu0"), "release") == int(n) })
	}
	if got := b.ran("gpu0"); strings.Count(got, "acquire") != 2 || len(a.Faults()) != 0 {
		t.Errorf("ran %q, faults %v", got, a.Faults())
	}
}

func TestAJobWaitsForOnReleaseOfTheOneBefore(t *testing.T) {
	b := newHooked(t, 0, "[ ! -e releasing-$RC_DEVICE ] || touch together", "touch releasing-$RC_DEVICE; "+untilThere("go")+"; rm releasing-$RC_DEVICE")
	a := newTestAgent(t, b.Config)
	a.runJob(t, 1, "true")
	eventually(t, "releasing", func() bool { return exists(b.dir, "releasing-box:gpu0") })
	a.Order(context.Background(), order(wire.OrderStart, 2, 2, sh("[ ! -e "+b.dir+"/releasing-box:gpu0 ]")...))
	// The other device of the host is not held up by it.
	other := order(wire.OrderStart, 3, 3, "true")
	other.Start.Devices = []string{"box:gpu1"}
	a.Order(context.Background(), other)
	if o := a.awaitOutcome(t, key{3, 3}); *o.ExitCode != 0 {
		t.Errorf("outcome %+v", o)
	}
	if phase, o := a.phase(key{2, 2}); phase != wire.PhaseStarting || o != nil || exists(b.DataDir, jobsDir, "2-2") {
		t.Errorf("it did not wait: phase %v, outcome %+v", phase, o)
	}
	b.touch(t, "go")
	if o := a.awaitOutcome(t, key{2, 2}); *o.ExitCode != 0 || exists(b.dir, "together") {
		t.Errorf("outcome %+v, hooks together: %v", o, exists(b.dir, "together"))
	}
}

func TestAKillEndsOnAcquireAtOnceAndIsNoFault(t *testing.T) {
	for name, kill := range map[string]func(a *agent){
		"kill order": func(a *agent) { a.Order(context.Background(), order(wire.OrderKill, 1, 1)) },
		"later lease": func(a *agent) {
			a.Order(context.Background(), order(wire.OrderStart, 2, 2, "true"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHooked(t, never, "[ $RC_JOB_ID = j-1 ] || exit 0; echo $$ > pid; sleep 600 & wait; sleep 600", "")
			a := newTestAgent(t, b.Config)
			a.Order(context.Background(), order(wire.OrderStart, 1, 1, "touch", b.dir+"/started"))
			eventually(t, "acquiring", func() bool { return lines(b.dir+"/pid") == 1 })
			id := identifyScript(t, b.dir+"/pid")[0]
			kill(a)
			o := a.awaitOutcome(t, key{1, 1})
			if o.End != uint8(command.EndKilled) || o.ExitCode != nil || o.Survivors != "" || o.Reason == "" || proc.Alive(id) {
				t.Errorf("outcome %+v, script alive %v", o, proc.Alive(id))
			}
			if name == "later lease" {
				if o := a.awaitOutcome(t, key{2, 2}); *o.ExitCode != 0 {
					t.Errorf("outcome %+v", o)
				}
				if got := b.ran("gpu0"); got != "acquire box:gpu0 j-1 ann\nacquire box:gpu0 j-2 ann\n" {
					t.Errorf("ran %q", got)
				}
			}
			if exists(b.dir, "started") || len(a.Faults()) != 0 {
				t.Errorf("started: %v, faults %v", exists(b.dir, "started"), a.Faults())
			}
		})
	}
}

// TestWhatAnInterruptedOnAcquireHasBegunIsReleased: nobody is to blame, so the
// device stays in the pool, and must not stay half set up.
func TestWhatAnInterruptedOnAcquireHasBegunIsReleased(t *testing.T) {
	b := newHooked(t, 0, "touch acquiring; sleep 600", "")
	a := newTestAgent(t, b.Config)
	a.Order(context.Background(), order(wire.OrderStart, 1, 1, "true"))
	eventually(t, "acquiring", func() bool { return exists(b.dir, "acquiring") })
	a.Order(context.Background(), order(wire.OrderKill, 1, 1))
	eventually(t, "released", func() bool { return b.ran("gpu0") == "acquire box:gpu0 j-1 ann\nrelease box:gpu0 j-1 ann\n" })
}

// TestHooksAndJobsOfADeviceNeverMeet has jobs come at any moment of the linger
// and of on_release. What runs on the device witnesses what it finds there.
func TestHooksAndJobsOfADeviceNeverMeet(t *testing.T) {
	const alone = "mkdir here || touch wrong-$RC_EVENT; "
	b := newHooked(t, 4*time.Millisecond, alone+"[ ! -e held ] || touch wrong-twice; touch held; rmdir here", alone+"rm held || touch wrong-none; rmdir here")
	a := newTestAgent(t, b.Config)
	for n := range uint64(30) {
		if o := a.runJob(t, n+1, sh("cd "+b.dir+"; mkdir here && [ -e held ] && sleep 0.005 && [ -e held ] && rmdir here")...); *o.ExitCode != 0 {
			t.Errorf("job %d: %+v", n+1, o)
		}
		time.Sleep(time.Duration(n%12) * time.Millisecond)
	}
	if found, _ := filepath.Glob(b.dir + "/wrong-*"); len(found) > 0 {
		t.Errorf("found: %v", found)
	}
	acquired := strings.Count(b.ran("gpu0"), "acquire")
	if t.Logf("acquired %d times for 30 jobs", acquired); acquired < 2 {
		t.Error("no release ran: nothing is shown by this")
	}
}

func TestAHungHookDelaysNoOrderAndNoOtherDevice(t *testing.T) {
	b := newHooked(t, never, "[ $RC_DEVICE = box:gpu1 ] || { touch hung; sleep 600; }", "")
	c := controlOf(t, &b.Config)
	startAgent(t, b.Config)
	c.want(1, nil, "true")
	eventually(t, "hung", func() bool { return exists(b.dir, "hung") })
	for n := uint64(2); n <= 4; n++ {
		c.want(n, func(s *wire.StartJob) { s.Devices = []string{"box:gpu1"} }, "true")
		if o := c.outcome(t, n); *o.ExitCode != 0 {
			t.Errorf("outcome %+v", o)
		}
	}
	if !c.hub.Attached("box") {
		t.Error("the agent is not attached any more")
	}
	c.kill(1)
	if o := c.outcome(t, 1); o.End != uint8(command.EndKilled) {
		t.Errorf("outcome %+v", o)
	}
}

func TestEachOfSeveralDevicesHasItsHooksRun(t *testing.T) {
	b := newHooked(t, 0, "[ ! -e no-$RC_DEVICE ] || { echo $RC_DEVICE is dead; exit 1; }", "")
	a := newTestAgent(t, b.Config)
	both := func(n uint64) wire.Outcome {
		o := order(wire.OrderStart, n, n, "true")
		o.Start.Devices = []string{"box:gpu0", "box:gpu1"}
		a.Order(context.Background(), o)
		return a.awaitOutcome(t, key{n, n})
	}
	for n := uint64(1); n <= 2; n++ {
		if o := both(n); *o.ExitCode != 0 {
			t.Errorf("outcome %+v", o)
		}
		for _, d := range []string{"gpu0", "gpu1"} {
			want := fmt.Sprintf("acquire box:%s j-%d ann\nrelease box:%s j-%d ann\n", d, n, d, n)
			eventually(t, "hooks of "+d, func() bool { return strings.HasSuffix(b.ran(d), want) })
		}
	}
	b.touch(t, "no-box:gpu1")
	if o := both(3); o.Survivors != "on_acquire of gpu1 exited 1: box:gpu1 is dead" {
		t.Errorf("outcome %+v", o)
	}
	eventually(t, "gpu0 released", func() bool { return strings.HasSuffix(b.ran("gpu0"), "release box:gpu0 j-3 ann\n") })
	if got := b.ran("gpu1"); !strings.HasSuffix(got, "acquire box:gpu1 j-3 ann\n") {
		t.Errorf("gpu1 ran %q", got)
	}
}
