package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"rcd/agent/shim"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/relay"
	"rcd/wire"
)

// seated is a test's end of a stream that is attached to a job.
type seated struct {
	t    *testing.T
	conn relay.Conn
	stop context.CancelFunc
	done chan error
	hold chan struct{} // a Take that begins with ! waits for it, nil never

	mu     sync.Mutex
	text   strings.Builder
	writer uint64 // as said last
	window uint32 // the same
	acked  int64
	acks   int
	end    relay.End
}

func (c *control) attach(t *testing.T, open wire.StreamOpen, hold chan struct{}) *seated {
	t.Helper()
	return c.attachAt(t, 0, open, hold)
}

// attachAt is attach for a reader that has had everything before an offset.
func (c *control) attachAt(t *testing.T, offset int64, open wire.StreamOpen, hold chan struct{}) *seated {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	conn, err := c.hub.OpenStream(ctx, "box")
	if err != nil {
		t.Fatal(err)
	}
	open.Follow, open.Attach = true, true
	if err := relay.Ask(conn, offset, open); err != nil {
		t.Fatal(err)
	}
	s := &seated{t: t, conn: conn, stop: cancel, done: make(chan error, 1), hold: hold}
	dialled := false
	go func() {
		_, end, err := relay.Follow(ctx, func(context.Context, int64) (relay.Conn, error) {
			if dialled {
				return nil, relay.Permanent(errors.New("once is enough"))
			}
			dialled = true
			return conn, nil
		}, offset, relay.SinkFunc(s.take), relay.FollowOptions{Input: s.heard})
		s.mu.Lock()
		s.end = end
		s.mu.Unlock()
		s.done <- err
	}()
	t.Cleanup(cancel)
	return s
}

func (s *seated) take(ctx context.Context, record relay.Record) error {
	if s.hold != nil {
		select {
		case <-s.hold:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if d, ok := record.(relay.Data); ok {
		s.text.Write(d.Bytes)
	}
	return nil
}

func (s *seated) heard(frame wire.Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ack, err := frame.Ack(); err == nil {
		s.writer, s.window, s.acked, s.acks = ack.Writer, ack.Window, frame.Offset, s.acks+1
	}
}

func (s *seated) look() (text string, writer uint64, acked int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String(), s.writer, s.acked
}

func (s *seated) sees(text string) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("%q", text), func() bool { got, _, _ := s.look(); return strings.Contains(got, text) })
}

func (s *seated) types(text string) {
	s.t.Helper()
	eventually(s.t, "a number", func() bool { _, writer, _ := s.look(); return writer > 0 })
	_, _, at := s.look()
	if err := wire.WriteFrame(s.conn, wire.Frame{Type: wire.FrameInput, Stream: wire.StreamStdin, Offset: at, Payload: []byte(text)}); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "an ack", func() bool { _, _, acked := s.look(); return acked == at+int64(len(text)) })
}

func terminalWith(env ...string) func(*wire.StartJob) {
	return func(s *wire.StartJob) {
		s.Stdio, s.Env = uint8(model.StdioTTY), map[string]string{}
		for i := 0; i+1 < len(env); i += 2 {
			s.Env[env[i]] = env[i+1]
		}
	}
}

func TestOneWritesToATerminalAndOthersLookOn(t *testing.T) {
	if _, ok := attached(t)["tty"]; !ok {
		t.Skip("no terminals")
	}
	c := newControl(t)
	startAgent(t, testConfig(dataDir(t), c))
	eventually(t, "an agent", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.hellos) == 1 })
	c.want(1, terminalWith(), "sh", "-c", `stty -echo; echo ready; while read x; do echo "got $x"; test $x = size && stty size; done; exit 3`)
	first := c.attach(t, wire.StreamOpen{Job: "j-1", TakeOver: true}, nil)
	watcher := c.attach(t, wire.StreamOpen{Job: "j-1"}, nil)
	first.sees("ready")
	first.types("one\n")
	watcher.sees("got one")
	_, number, _ := first.look()

	// The link breaks; the same number goes on, and says again what it does not know to be acked.
	first.stop()
	again := c.attach(t, wire.StreamOpen{Job: "j-1", Writer: number}, nil)
	eventually(t, "the same writer", func() bool { _, writer, acked := again.look(); return writer == number && acked == 4 })
	if err := wire.WriteFrame(again.conn, wire.Frame{Type: wire.FrameInput, Stream: wire.StreamStdin, Offset: 0, Payload: []byte("one\ntwo\n")}); err != nil {
		t.Fatal(err)
	}
	watcher.sees("got two")

	second := c.attach(t, wire.StreamOpen{Job: "j-1", TakeOver: true}, nil)
	second.types("three\n")
	eventually(t, "word of the take-over", func() bool { _, writer, _ := again.look(); return writer > number })
	if err := wire.WriteFrame(again.conn, wire.Frame{Type: wire.FrameInput, Stream: wire.StreamStdin, Offset: 8, Payload: []byte("lost\n")}); err != nil {
		t.Fatal(err)
	}
	if err := wire.WriteFrame(second.conn, wire.ResizeFrame(14, wire.StreamResize{Rows: 33, Cols: 99})); err != nil {
		t.Fatal(err)
	}
	second.types("size\n")
	second.types("\x04")
	for name, s := range map[string]*seated{"the watcher": watcher, "the first writer": again, "the second": second} {
		if err := <-s.done; err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := strings.ReplaceAll(s.text.String(), "\r\n", "\n"); got != "ready\ngot one\ngot two\ngot three\ngot size\n33 99\n" {
			t.Errorf("%s sees %q", name, got)
		}
	}
	if o := c.outcome(t, 1); o.ExitCode == nil || *o.ExitCode != 3 {
		t.Errorf("%+v", o)
	}
}

func TestTheWritersReaderHoldsTheJobBackAndWatchersDoNot(t *testing.T) {
	c := newControl(t)
	startAgent(t, testConfig(dataDir(t), c))
	eventually(t, "an agent", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.hellos) == 1 })
	const lines = 500_000 // 3.4 MB
	c.want(1, func(s *wire.StartJob) { s.Stdio = uint8(model.StdioPipe) }, "sh", "-c", fmt.Sprintf("read x; exec seq %d", lines))
	slow := make(chan struct{})
	writer := c.attach(t, wire.StreamOpen{Job: "j-1", TakeOver: true}, slow)
	stuck := c.attach(t, wire.StreamOpen{Job: "j-1"}, make(chan struct{})) // never reads, and holds nobody back
	watcher := c.attach(t, wire.StreamOpen{Job: "j-1"}, nil)
	writer.types("go\n")
	eventually(t, "a window full", func() bool { got, _, _ := watcher.look(); return len(got) >= 1<<20 })
	// The time is the experiment: the watcher acks all that within it, and must
	// not count. What comes beyond the window stood in the kernel's buffers.
	time.Sleep(3 * time.Second)
	if got, _, _ := watcher.look(); len(got) > 3<<19 {
		t.Errorf("the job went on to %d bytes, and its writer has read nothing", len(got))
	}
	close(slow)
	if err := <-writer.done; err != nil || !strings.HasSuffix(writer.text.String(), fmt.Sprintf("\n%d\n", lines)) {
		t.Errorf("%d bytes, %v", writer.text.Len(), err)
	}
	stuck.stop()
}

func TestAnUnattendedTerminalIsEndedAndAnAttendedOneIsNot(t *testing.T) {
	if _, ok := attached(t)["tty"]; !ok {
		t.Skip("no terminals")
	}
	c := newControl(t)
	startAgent(t, testConfig(dataDir(t), c))
	eventually(t, "an agent", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.hellos) == 1 })
	on := func(device, patience string) func(*wire.StartJob) {
		return func(s *wire.StartJob) {
			terminalWith(model.DetachTimeoutEnv, patience)(s)
			s.Devices = []string{"box:" + device}
		}
	}
	c.want(1, on("gpu0", "1s"), "sh", "-c", "echo ready; exec sleep 600")
	s := c.attach(t, wire.StreamOpen{Job: "j-1"}, nil)
	s.sees("ready")
	c.want(2, on("gpu1", "2s"), "sleep", "600") // longer than the first would have, unattended
	ending{command.EndKilled, model.OriginJob, []string{"terminal unattended for 2s"}}.check(t, c.outcome(t, 2))
	c.mu.Lock()
	o, ended := c.outcomes[1]
	c.mu.Unlock()
	if ended {
		t.Fatalf("a terminal that somebody looks at was ended: %+v", o)
	}
	s.stop()
	ending{command.EndKilled, model.OriginJob, []string{"terminal unattended for 1s"}}.check(t, c.outcome(t, 1))
}

func TestAPipeThatAsksForItIsEndedWhenNobodyAttends(t *testing.T) {
	c := newControl(t)
	startAgent(t, testConfig(dataDir(t), c))
	eventually(t, "an agent", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.hellos) == 1 })
	c.want(1, func(s *wire.StartJob) {
		s.Stdio, s.Env = uint8(model.StdioPipe), map[string]string{model.DetachTimeoutEnv: "1s"}
	}, "sleep", "600")
	ending{command.EndKilled, model.OriginJob, []string{"pipe unattended for 1s"}}.check(t, c.outcome(t, 1))
}

func TestADetachTimeoutIsTheJobsOwnAndAPipeHasNoOther(t *testing.T) {
	for _, tt := range []struct {
		stdio shim.Stdio
		env   string
		want  time.Duration
	}{
		{shim.StdioTTY, "TERM=xterm", model.DefaultDetachTimeout},
		{shim.StdioTTY, model.DetachTimeoutEnv + "=90m", 90 * time.Minute},
		{shim.StdioTTY, model.DetachTimeoutEnv + "=0", 0},
		{shim.StdioPipe, "TERM=xterm", 0},
		{shim.StdioPipe, model.DetachTimeoutEnv + "=90m", 90 * time.Minute},
		{shim.StdioLog, model.DetachTimeoutEnv + "=90m", 0},
	} {
		if got := detachTimeout(shim.Spec{Stdio: tt.stdio, Env: []string{tt.env}}); got != tt.want {
			t.Errorf("stdio %v, %s: %v, want %v", tt.stdio, tt.env, got, tt.want)
		}
	}
}
