package agent

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

var (
	restarts    = flag.Int("agent.restarts", 0, "how often the agent is ended at random; 0: 8, and 200 with -agent.long")
	restartSeed = flag.Uint64("agent.seed", 0, "seed of the moments at which it is; 0: a new one")
)

// TestRestartsLoseNoExitCodeAndPutNoTwoLeasesOnADevice ends agents with SIGKILL
// and SIGTERM at random moments while jobs of every kind begin and end on four
// devices, one after the other on each.
func TestRestartsLoseNoExitCodeAndPutNoTwoLeasesOnADevice(t *testing.T) {
	times := *restarts
	if times == 0 && *long {
		times = 200
	} else if times == 0 {
		times = 8
	}
	seed := *restartSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("%d restarts; again with -agent.restarts=%d -agent.seed=%d", times, times, seed)
	r := rand.New(rand.NewPCG(seed, 1))

	c := newControl(t)
	dir := dataDir(t)
	stop, fed := make(chan struct{}), make(chan uint64, 1)
	go func() { fed <- feed(c, stop) }()
	current := startProcess(t, c, dir, "")
	for i := 0; i < times || c.told() < 2*times; i++ { // without its load a run does not count
		if i%2 == 0 { // else it may be as young as can be
			c.attached(t)
		}
		time.Sleep(time.Duration(20+r.IntN(200)) * time.Millisecond) // the moment is what is random
		current.end([]unix.Signal{unix.SIGKILL, unix.SIGTERM}[r.IntN(2)])
		current = startProcess(t, c, dir, "")
	}
	close(stop)
	total := <-fed
	for n := uint64(1); n <= total; n++ {
		o := c.outcome(t, n)
		if why := wrongEnd(n, o); why != "" {
			t.Errorf("job %d (%v): %s: %+v", n, kindOf(n), why, o)
		}
	}
	t.Logf("%d jobs", total)
	begun := begunOnce(t, dir)
	for n := uint64(1); n <= total; n++ {
		// A job that is killed may have been killed before it began.
		if !slices.Contains(begun, n) && kindOf(n) != killed && kindOf(n) != hold {
			t.Errorf("the witness never saw job %d", n)
		}
		if kindOf(n) != hold && n%10 == 0 {
			if text, err := wholeOutput(t, c, n); err != nil || kindOf(n) != killed && text != fmt.Sprintf("begin %d\nend %d\n", n, n) {
				t.Errorf("output of job %d: %q, %v", n, text, err)
			}
		}
	}
}

// kind is what a job of the load does.
type kind string

const (
	ordinary kind = "plain"   // ends by itself
	leaving  kind = "leaving" // the same, and leaves processes behind
	killed   kind = "killed"  // is killed, and ends with its own code
	hold     kind = "hold"    // a hold that is released
)

func kindOf(n uint64) kind { return []kind{ordinary, leaving, ordinary, killed, hold}[n%5] }

func codeOf(n uint64) int32 { return int32(n % 100) }

// feed keeps four devices busy until stop is closed, and returns how many jobs
// it has asked for.
func feed(c *control, stop chan struct{}) uint64 {
	ask := func(n uint64, device string) {
		on := func(s *wire.StartJob) { s.Devices = []string{device} }
		say := fmt.Sprintf("echo begin %d; sleep 0.0%d; ", n, n%7)
		leave := fmt.Sprintf("echo end %d; exit %d", n, codeOf(n))
		switch kindOf(n) {
		case ordinary:
			c.want(n, on, sh(say+leave)...)
		case leaving:
			c.want(n, on, sh(say+"sleep 60 & setsid sleep 60 & "+leave)...)
		case killed:
			c.want(n, on, sh(fmt.Sprintf("trap 'exit %d' TERM; while :; do sleep 0.01; done", codeOf(n)))...)
		case hold:
			c.want(n, func(s *wire.StartJob) { on(s); s.Kind = uint8(model.KindHold) })
		}
	}
	on := map[string]uint64{}
	since := map[uint64]time.Time{}
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for n := uint64(0); ; {
		for gpu := range 4 {
			device := fmt.Sprintf("box:gpu%d", gpu)
			if last := on[device]; last != 0 && c.wanted(last) {
				if k := kindOf(last); (k == killed || k == hold) && time.Since(since[last]) > 60*time.Millisecond {
					c.kill(last)
				}
				continue
			}
			n++
			on[device], since[n] = n, time.Now()
			ask(n, device)
		}
		select {
		case <-tick.C:
		case <-stop:
			for _, last := range on {
				if k := kindOf(last); k == killed || k == hold {
					c.kill(last)
				}
			}
			return n
		}
	}
}

// attached waits until the agent of this moment is taken in.
func (c *control) attached(t *testing.T) {
	c.mu.Lock()
	before := len(c.hellos)
	c.mu.Unlock()
	eventually(t, "agent attached", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.hellos) > before || c.hub.Attached("box")
	})
}

// told counts the outcomes that the controller has.
func (c *control) told() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.outcomes)
}

// wanted tells whether a job has not ended as far as the controller knows.
func (c *control) wanted(job uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.desired[job]
	return ok
}

// wrongEnd says what is wrong with an outcome, "" if nothing is.
func wrongEnd(n uint64, o wire.Outcome) string {
	code := int32(-1)
	if o.ExitCode != nil {
		code = *o.ExitCode
	}
	end := command.EndExited
	if k := kindOf(n); k == killed || k == hold {
		end = command.EndKilled
	}
	switch {
	case o.Survivors != "":
		return "survivors"
	case o.End != uint8(end):
		return "ended another way"
	case end == command.EndExited && code != codeOf(n):
		return "not its exit code"
	case kindOf(n) == hold && o.ExitCode != nil && code != 143:
		return "not the code of a hold"
	case kindOf(n) == killed && o.ExitCode != nil && code != codeOf(n) && code != 143:
		return "not the code that its trap leaves with" // 143: before the trap was set
	case o.ExitCode == nil && (o.OutputLength != 0 || !strings.HasPrefix(o.Reason, "cancelled")):
		return "no exit code"
	}
	return ""
}
