package chaos

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// What rc run may say on stderr while the controllers come and go: how it
// fares in the queue, where it runs, and one line for each change that held
// its output up.
var (
	runTalk = []*regexp.Regexp{
		regexp.MustCompile(`^rc: queued at position \d+ for vram>=40G$`),
		regexp.MustCompile(`^rc: .+; (starts within \S+ at the latest|until when cannot be said)$`),
		regexp.MustCompile(`^rc: job j-\d+ on box:gpu\d+$`),
	}
	runNotice = []*regexp.Regexp{
		regexp.MustCompile(`^rc: lost contact with \S+, resumed (on \S+ )?after \S+$`),
		regexp.MustCompile(`^rc: the leader changed; output resumed through \S+ after \S+$`),
	}
)

func anyMatch(patterns []*regexp.Regexp, line string) bool {
	for _, p := range patterns {
		if p.MatchString(line) {
			return true
		}
	}
	return false
}

// crowd is clients that each run one job after the other until told to stop.
type crowd struct {
	c       *Cluster
	stop    chan struct{}
	once    sync.Once // closes stop
	wg      sync.WaitGroup
	began   atomic.Int64 // runs, ended ones too
	ended   atomic.Int64
	notices atomic.Int64
	// restarts is how many there will be: no run can see more changes.
	restarts int
}

func (w *crowd) start(t *testing.T, clients int) {
	t.Cleanup(w.end) // also when the test gives up
	for i := range clients {
		w.wg.Go(func() {
			for round := 0; ; round++ {
				select {
				case <-w.stop:
					return
				default:
					w.one(t, fmt.Sprintf("mark-%d-%d", i, round))
				}
			}
		})
	}
}

// end returns once every run has ended.
func (w *crowd) end() {
	w.once.Do(func() { close(w.stop) })
	w.wg.Wait()
}

// one is a job of about 0.3 s; several at a time wait for each device.
func (w *crowd) one(t *testing.T, mark string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd, stdout, stderr := w.c.RC(ctx, "run", "--select", "vram>=40G", "--", "sh", "-c",
		fmt.Sprintf("echo begin %s; sleep 0.3; echo aside %s >&2; echo end %s", mark, mark, mark))
	w.began.Add(1)
	err := cmd.Run()
	w.ended.Add(1)
	if want := fmt.Sprintf("begin %s\nend %s\n", mark, mark); err != nil || stdout.String() != want {
		t.Errorf("rc run of %s: %v, stdout %q\n%s", mark, err, stdout, stderr)
		return
	}
	asides, notices := 0, 0
	for line := range strings.Lines(stderr.String()) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "aside "+mark:
			asides++
		case anyMatch(runNotice, line):
			notices++
		case !anyMatch(runTalk, line):
			t.Errorf("rc run of %s says %q; all of stderr:\n%s", mark, line, stderr)
		}
	}
	if asides != 1 || notices > w.restarts {
		t.Errorf("rc run of %s: its own line on stderr %d times, %d notices:\n%s", mark, asides, notices, stderr)
	}
	w.notices.Add(int64(notices))
}

// steady waits until half as many runs as there are clients have ended since
// the last restart, and nearly every client has one under way.
func (w *crowd) steady(clients int) {
	w.c.t.Helper()
	since := w.ended.Load()
	w.c.Eventually("runs between two restarts", func() error {
		ended, under := w.ended.Load()-since, w.began.Load()-w.ended.Load()
		if ended < int64(clients/2) || under < int64(clients*4/5) {
			return fmt.Errorf("%d have ended, %d are under way", ended, under)
		}
		return nil
	})
}

// ready waits until a node says that it can answer requests.
func (c *Cluster) ready(n *Node) {
	c.t.Helper()
	c.Eventually(n.ID+" ready again", func() error {
		status, body, err := c.Get(n, "/readyz")
		if err != nil || status != http.StatusOK {
			return fmt.Errorf("%d %s %v", status, body, err)
		}
		return nil
	})
}

// TestFiftyConcurrentRunsSeeNoErrorThroughARollingRestart restarts each
// controller as an operator does, and then each once more by kill -9, while
// fifty clients submit, queue, read and end.
func TestFiftyConcurrentRunsSeeNoErrorThroughARollingRestart(t *testing.T) {
	const clients = 50
	c := Start(t, bin, Options{Controllers: 3, Devices: 8})
	w := &crowd{c: c, stop: make(chan struct{}), restarts: 2 * len(c.Nodes)}
	w.start(t, clients)
	for _, how := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		begun, before := time.Now(), w.ended.Load()
		for _, n := range c.Nodes {
			w.steady(clients)
			n.End(how)
			n.Start(t)
			c.ready(n)
		}
		t.Logf("%v of %d controllers: %v, %d runs", how, len(c.Nodes), time.Since(begun).Round(time.Millisecond), w.ended.Load()-before)
	}
	w.steady(clients)
	w.end()
	if n := w.ended.Load(); n < 3*clients {
		t.Errorf("%d runs: the load was too small to count", n)
	}
	t.Logf("%d runs, %d notices", w.ended.Load(), w.notices.Load())
}
