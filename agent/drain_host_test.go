package agent

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rcd/model"
	"rcd/wire"
)

// draining is a DrainHost under way.
type draining struct {
	t      *testing.T
	cancel func()
	done   chan struct{}
	status Status // once done
	err    error  // once done

	mu   sync.Mutex // guards said
	said []string
}

func startDrain(t *testing.T, config Config, o DrainOptions) *draining {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	d := &draining{t: t, cancel: cancel, done: make(chan struct{})}
	o.Logger = testLog(t)
	o.Say = func(line string) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.said = append(d.said, line)
	}
	go func() {
		defer close(d.done)
		d.status, d.err = DrainHost(ctx, config, o)
	}()
	t.Cleanup(func() { cancel(); <-d.done })
	return d
}

// hears waits for a line with text.
func (d *draining) hears(text string) {
	d.t.Helper()
	eventually(d.t, "said: "+text, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return slices.ContainsFunc(d.said, func(line string) bool { return strings.Contains(line, text) })
	})
}

func (d *draining) ends() error {
	d.t.Helper()
	select {
	case <-d.done:
	case <-time.After(60 * time.Second):
		d.t.Fatal("the drain does not end")
	}
	return d.err
}

// until is a command that runs until a file is there, and then exits with 7.
func until(path string) []string {
	return sh("until [ -e " + path + " ]; do sleep 0.02; done; exit 7")
}

func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func (c *control) details() (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.faults {
		out = append(out, f.Device+": "+f.Detail)
	}
	slices.Sort(out)
	return out
}

func exitOf(o wire.Outcome) int32 {
	if o.ExitCode == nil {
		return -99
	}
	return *o.ExitCode
}

func TestADrainWaitsForJobsThroughARestartOfTheAgentAndTellsTheCluster(t *testing.T) {
	t.Parallel()
	c := newControlOf(t, rand.Text())
	config := testConfig(dataDir(t), c)
	r := startAgent(t, config)
	marker := filepath.Join(t.TempDir(), "go")
	c.want(1, nil, until(marker)...)
	eventually(t, "running", func() bool { return c.isRunning(1) })
	d := startDrain(t, config, DrainOptions{Reason: "new fans"})
	d.hears("waiting for 1: j-1 on gpu0")
	eventually(t, "told", func() bool { return len(c.details()) >= 2 })
	want := []string{
		"gpu0: drained on the host: new fans; return it with: rc clear box:gpu0",
		"gpu1: drained on the host: new fans; return it with: rc clear box:gpu1",
	}
	if got := c.details(); !slices.Equal(got, want) {
		t.Errorf("the leader was told %q, want %q", got, want)
	}
	r.stop()
	startAgent(t, config)
	select {
	case <-d.done:
		t.Fatalf("the drain ended before the job: %v", d.err)
	default:
	}
	touch(t, marker)
	if err := d.ends(); err != nil {
		t.Fatal(err)
	}
	if o := c.outcome(t, 1); exitOf(o) != 7 {
		t.Errorf("the job did not end by itself: %+v", o)
	}
	if s := d.status; len(s.Jobs) != 0 || s.Devices[0].Drain != DrainSettled || s.Devices[1].Drain != DrainSettled {
		t.Errorf("status %+v", s)
	}
	// An operator has returned gpu0: what is placed from then on runs.
	c.want(2, nil, sh("exit 0")...)
	if o := c.outcome(t, 2); exitOf(o) != 0 {
		t.Errorf("outcome %+v", o)
	}
	s, err := StatusOf(context.Background(), config)
	if err != nil || s.Devices[0].Drain != "" || s.Devices[1].Drain != DrainSettled {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestADrainThatKillsLeavesNothingAndNothingFromBeforeBegins(t *testing.T) {
	for name, with := range map[string]bool{"with an agent": true, "without one": false} {
		t.Run(name, func(t *testing.T) {
			c := newControl(t)
			config := testConfig(dataDir(t), c)
			r := startAgent(t, config)
			c.want(1, nil, sh("trap '' TERM; sleep 60 & setsid sleep 60 & wait; sleep 60")...)
			eventually(t, "running", func() bool { return c.isRunning(1) })
			if !with {
				r.stop()
			}
			d := startDrain(t, config, DrainOptions{Kill: true})
			if err := d.ends(); err != nil {
				t.Fatal(err)
			}
			if left := d.status.Live(); len(left) != 0 {
				t.Errorf("left %v", left)
			}
			if with {
				if got := c.details(); len(got) != 2 {
					t.Errorf("the leader was told %q", got)
				}
			} else {
				d.hears("the one that starts next tells the cluster")
				startAgent(t, config)
				eventually(t, "told by the next agent", func() bool { return len(c.details()) >= 2 })
			}
			if o := c.outcome(t, 1); o.Reason != reasonDrained {
				t.Errorf("outcome %+v", o)
			}
			// Placed before the leader knew, and late on its way.
			ran := filepath.Join(t.TempDir(), "ran")
			c.want(2, nil, "touch", ran)
			if o := c.outcome(t, 2); o.Reason != reasonDrained || o.Origin != uint8(model.OriginAgent) {
				t.Errorf("outcome %+v", o)
			}
			if _, err := os.Stat(ran); err == nil {
				t.Error("it ran")
			}
		})
	}
}

func TestADrainWithoutALeaderIsKeptForIt(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	nobody := config
	nobody.Controllers = []string{"127.0.0.1:1"}
	r := startAgent(t, nobody)
	d := startDrain(t, config, DrainOptions{LeaderWait: 100 * time.Millisecond})
	if err := d.ends(); err != nil {
		t.Fatal(err)
	}
	d.hears("no leader has heard of it yet")
	if s := d.status; s.Devices[0].Drain != DrainUntold || !s.LeaderHeard.IsZero() {
		t.Errorf("status %+v", s)
	}
	r.stop()
	c.want(1, nil, "true")
	startAgent(t, config)
	eventually(t, "told by the next agent", func() bool { return len(c.details()) >= 2 })
	if o := c.outcome(t, 1); o.Reason != reasonDrained {
		t.Errorf("what was placed before began after the host was empty: %+v", o)
	}
}

func TestADrainWithoutAnAgentWaitsForTheShims(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	r := startAgent(t, config)
	marker := filepath.Join(t.TempDir(), "go")
	c.want(1, nil, until(marker)...)
	eventually(t, "running", func() bool { return c.isRunning(1) })
	r.stop()
	d := startDrain(t, config, DrainOptions{})
	d.hears("waiting for 1: j-1 on gpu0, running for")
	touch(t, marker)
	if err := d.ends(); err != nil {
		t.Fatal(err)
	}
	startAgent(t, config)
	if o := c.outcome(t, 1); exitOf(o) != 7 {
		t.Errorf("outcome %+v", o)
	}
	eventually(t, "told by the next agent", func() bool { return len(c.details()) >= 2 })
}

func TestADrainThatIsInterruptedNamesTheJobsAndLasts(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	r := startAgent(t, config)
	c.want(1, nil, until("/nowhere")...)
	eventually(t, "running", func() bool { return c.isRunning(1) })
	d := startDrain(t, config, DrainOptions{})
	d.hears("waiting for")
	d.cancel()
	if err := d.ends(); !errors.Is(err, ErrNotDrained) || !strings.Contains(err.Error(), "j-1 on gpu0") || errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	r.stop()
	startAgent(t, config)
	if s, err := StatusOf(context.Background(), config); err != nil || s.Drain == nil || len(s.Live()) != 1 || s.Live()[0].Killing != "" {
		t.Errorf("%+v, %v", s, err)
	}
	if answer, err := ask(context.Background(), config.DataDir, controlRequest{Do: doClose}); err != nil || !answer.Busy || answer.Status.Drain.Closed {
		t.Errorf("closed over a job: %+v, %v", answer, err)
	}
	// A second one, meanwhile, ends it: what waits sees that nothing is left.
	again := startDrain(t, config, DrainOptions{LeaderWait: 100 * time.Millisecond})
	again.hears("waiting for")
	if err := startDrain(t, config, DrainOptions{Kill: true}).ends(); err != nil {
		t.Error(err)
	}
	if err := again.ends(); err != nil {
		t.Error(err)
	}
}

func TestAnAgentGoesOnWithADrainThatKills(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	r := startAgent(t, config)
	c.want(1, nil, until("/nowhere")...)
	eventually(t, "running", func() bool { return c.isRunning(1) })
	r.stop()
	book, err := openDrain(config.DataDir, config.Host)
	if err != nil {
		t.Fatal(err)
	}
	// An agent that died in the middle left this much. gpu1 it would have found.
	if err := book.begin([]string{"gpu0"}, "", true, true); err != nil {
		t.Fatal(err)
	}
	startAgent(t, config)
	if o := c.outcome(t, 1); o.Reason != reasonDrained {
		t.Errorf("outcome %+v", o)
	}
	eventually(t, "both devices told", func() bool { return len(c.details()) >= 2 })
}

func TestADrainThatIsCancelledTakesOrdersAgain(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	r := startAgent(t, config)
	if err := startDrain(t, config, DrainOptions{Kill: true}).ends(); err != nil {
		t.Fatal(err)
	}
	for _, with := range []bool{true, false} {
		if !with {
			r.stop()
			if err := startDrain(t, config, DrainOptions{Kill: true}).ends(); err != nil {
				t.Fatal(err)
			}
		}
		out, err := CancelDrain(context.Background(), config)
		if err != nil || !slices.Equal(out, []string{"gpu0", "gpu1"}) {
			t.Errorf("agent=%v: %q, %v", with, out, err)
		}
		if out, err := CancelDrain(context.Background(), config); err != nil || out != nil {
			t.Errorf("agent=%v, a second time: %q, %v", with, out, err)
		}
		n := uint64(1)
		if !with {
			startAgent(t, config)
			n = 2
		}
		c.want(n, nil, "true")
		if o := c.outcome(t, n); exitOf(o) != 0 {
			t.Errorf("agent=%v: outcome %+v", with, o)
		}
	}
}

func TestAnAgentThatDoesNotAnswerIsNotTakenForNone(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	startAgent(t, config)
	// As under a release that has no control socket.
	if err := os.Remove(filepath.Join(config.DataDir, controlSocket)); err != nil {
		t.Fatal(err)
	}
	if _, err := StatusOf(context.Background(), config); !errors.Is(err, ErrLocked) {
		t.Errorf("status: %v", err)
	}
	d := startDrain(t, config, DrainOptions{})
	time.AfterFunc(100*time.Millisecond, d.cancel)
	if err := d.ends(); !errors.Is(err, ErrNotDrained) {
		t.Errorf("drain: %v", err)
	}
	if _, err := os.Stat(filepath.Join(config.DataDir, drainFile)); err == nil {
		t.Error("a drain was written under an agent that does not know of it")
	}
}
