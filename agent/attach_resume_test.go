package agent

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"rcd/model"
	"rcd/wire"
)

// TestAReaderThatComesBackWithAllOfTheWindowLetsTheJobGoOn: what it had taken
// when its link broke had reached it, and the word of that not the host. There
// is nothing new to say that of until the job has said more.
func TestAReaderThatComesBackWithAllOfTheWindowLetsTheJobGoOn(t *testing.T) {
	c := newControl(t)
	startAgent(t, testConfig(dataDir(t), c))
	eventually(t, "an agent", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.hellos) == 1 })
	const lines = 500_000 // 3.4 MB
	for n, open := range map[uint64]wire.StreamOpen{1: {}, 2: {TakeOver: true}} {
		id := model.JobID(n)
		c.want(n, func(s *wire.StartJob) { s.Stdio = uint8(model.StdioPipe) }, "seq", fmt.Sprint(lines))
		var held string
		eventually(t, "held back", func() bool {
			if !c.isRunning(n) {
				return false
			}
			before := len(held)
			time.Sleep(100 * time.Millisecond) // it stands still when two looks see the same
			held, _ = c.output(t, id, 0, false)
			return len(held) >= 1<<20 && len(held) == before
		})
		open.Job = id
		s := c.attachAt(t, int64(len(held)), open, nil)
		if err := <-s.done; err != nil || !strings.HasSuffix(s.text.String(), fmt.Sprintf("\n%d\n", lines)) {
			t.Errorf("%+v: %d bytes behind %d, %v", open, s.text.Len(), len(held), err)
		}
		c.outcome(t, n)
	}
}

// TestAJobGoesOnForWhoLooksOnOnceItsWriterHasLeft: they have read all that there
// is while they did not count, and have no more to say of it.
func TestAJobGoesOnForWhoLooksOnOnceItsWriterHasLeft(t *testing.T) {
	c := newControl(t)
	startAgent(t, testConfig(dataDir(t), c))
	eventually(t, "an agent", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.hellos) == 1 })
	const lines = 500_000 // 3.4 MB
	c.want(1, func(s *wire.StartJob) { s.Stdio = uint8(model.StdioPipe) }, "sh", "-c", fmt.Sprintf("read x; exec seq %d", lines))
	writer := c.attach(t, wire.StreamOpen{Job: "j-1", TakeOver: true}, make(chan struct{}))
	watcher := c.attach(t, wire.StreamOpen{Job: "j-1"}, nil)
	writer.types("go\n")
	eventually(t, "a window full", func() bool { got, _, _ := watcher.look(); return len(got) >= 1<<20 })
	time.Sleep(3 * time.Second) // for the watcher to have acked it: every 2 s
	writer.stop()
	if err := <-watcher.done; err != nil || !strings.HasSuffix(watcher.text.String(), fmt.Sprintf("\n%d\n", lines)) {
		t.Errorf("%d bytes, %v", watcher.text.Len(), err)
	}
}
