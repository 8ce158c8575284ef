package shim

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// frail is a connection that breaks after so many bytes from its other side.
type frail struct {
	net.Conn
	budget int
}

func (f *frail) Read(p []byte) (int, error) {
	if f.budget <= 0 {
		_ = f.Conn.Close()
		return 0, io.ErrUnexpectedEOF
	}
	n, err := f.Conn.Read(p[:min(len(p), f.budget)])
	f.budget -= n
	return n, err
}

// frailListener gives frail connections.
type frailListener struct {
	net.Listener
	budget   func() int
	accepted int
}

func (l *frailListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.accepted++
	return &frail{Conn: conn, budget: l.budget()}, nil
}

// station is a shim's server in this process, with a pipe in the job's place.
type station struct {
	h        *Handle
	attached *attachment
	listener *frailListener
	pipe     *os.File // what the process reads
	stop     func()   // ends the server; the input is over then
}

func newStation(t *testing.T, spec Spec, budget func() int) *station {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	dir := t.TempDir()
	inner, err := listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	attached, err := newAttachment(spec, log)
	if err != nil {
		t.Fatal(err)
	}
	s := &station{h: newHandle(dir, order{Spec: spec}, log), attached: attached, listener: &frailListener{Listener: inner, budget: budget}}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(pipe[1], true); err != nil {
		t.Fatal(err)
	}
	s.pipe = os.NewFile(uintptr(pipe[0]), "stdin")
	attached.feeder.start(pipe[1])
	srv := &server{board: newBoard(), hello: helloBody{Version: protocolVersion, JobID: spec.JobID}, attached: attached, log: log}
	var served sync.WaitGroup
	served.Go(func() { srv.run(s.listener) })
	s.stop = sync.OnceFunc(func() {
		attached.end()
		srv.board.change(func(st *Status) { st.Phase = Ended })
		_ = inner.Close()
		served.Wait()
	})
	t.Cleanup(func() { s.stop(); _ = s.pipe.Close() })
	return s
}

func TestAnInputComesBackWhereverItsConnectionBreaks(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	s := newStation(t, Spec{JobID: "j-1", Stdio: StdioPipe}, func() int { return rng.IntN(40_000) })
	want := make([]byte, 500_000)
	for i := range want {
		want[i] = byte(i % 251)
	}
	got := make(chan []byte, 1)
	go func() { all, _ := io.ReadAll(s.pipe); got <- all }()
	in := input(t, s.h, 1)
	for at := 0; at < len(want); at += 5000 {
		write(t, in, int64(at), want[at:at+5000])
	}
	if err := in.CloseInput(in.Next()); err != nil {
		t.Fatal(err)
	}
	select {
	case all := <-got:
		if !bytes.Equal(all, want) {
			t.Errorf("%d bytes arrived of %d, or other ones", len(all), len(want))
		}
	case <-time.After(60 * time.Second):
		t.Fatal("the input does not end")
	}
	acked(t, in, int64(len(want)))
	in.Close()
	s.stop()
	if s.listener.accepted < 10 {
		t.Errorf("only %d connections: nothing was tested", s.listener.accepted)
	}
}

// talk is a writer who speaks to the shim message by message.
type talk struct {
	t    *testing.T
	conn net.Conn
}

func (s *station) talk(t *testing.T, writer uint64) *talk {
	t.Helper()
	conn, err := dial(s.h.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &talk{t, conn}
	c.say(message{Type: typeOpenInput, OpenInput: &openInputBody{Writer: writer}})
	return c
}

func (c *talk) say(m message) {
	c.t.Helper()
	if err := send(c.conn, m); err != nil {
		c.t.Fatal(err)
	}
}

func (c *talk) input(offset int64, text string) {
	c.t.Helper()
	c.say(message{Type: typeInput, Input: &inputBody{Offset: offset, Data: []byte(text)}})
}

// hears returns the next state that ok likes.
func (c *talk) hears(ok func(inputStateBody) bool) inputStateBody {
	c.t.Helper()
	for {
		m, err := receive(c.conn)
		if err != nil {
			c.t.Fatal(err)
		}
		if m.InputState != nil && ok(*m.InputState) {
			return *m.InputState
		}
	}
}

func (c *talk) hungUp() bool {
	for {
		if _, err := receive(c.conn); err != nil {
			return !errors.Is(err, os.ErrDeadlineExceeded)
		}
	}
}

func whatever(inputStateBody) bool { return true }

func written(n int64) func(inputStateBody) bool {
	return func(s inputStateBody) bool { return s.Written == n }
}

// pipeBuffer is what a pipe holds by default.
const pipeBuffer = 64 << 10

func unlimited() int { return 1 << 40 }

func TestTheShimTakesEachByteOfInputOnce(t *testing.T) {
	s := newStation(t, Spec{JobID: "j-1", Stdio: StdioPipe}, unlimited)
	c := s.talk(t, 5)
	if got, want := c.hears(whatever), (inputStateBody{Writer: 5, Limit: feederBuffer}); got != want {
		t.Errorf("at the start %+v, want %+v", got, want)
	}
	c.input(0, "abc")
	c.hears(written(3))
	c.input(0, "abc") // repeated, and acked again
	if got := c.hears(whatever); got.Written != 3 || got.Accepted != 3 || got.Code != "" {
		t.Errorf("after a repetition %+v", got)
	}
	c.input(1, "bcde") // half of it repeated
	c.hears(written(5))
	d := s.talk(t, 5) // come again
	if got := d.hears(whatever); got.Written != 5 {
		t.Errorf("on another connection %+v", got)
	}
	e := s.talk(t, 4)
	if got := e.hears(whatever); got.Code != inputTaken || got.Writer != 5 || !e.hungUp() {
		t.Errorf("a lower writer: %+v", got)
	}
	f := s.talk(t, 6)
	if got := f.hears(whatever); got.Code != "" || got.Writer != 6 || got.Accepted != 5 {
		t.Errorf("a higher writer: %+v", got)
	}
	if got := c.hears(func(s inputStateBody) bool { return s.Writer == 6 }); got.Code != inputTaken || !c.hungUp() || !d.hungUp() {
		t.Errorf("the replaced one: %+v", got)
	}
	f.input(5, "f")
	f.hears(written(6))
	f.say(message{Type: typeEndInput, EndInput: &endInputBody{Offset: 6}})
	f.say(message{Type: typeEndInput, EndInput: &endInputBody{Offset: 6}})
	if all, err := io.ReadAll(s.pipe); err != nil || string(all) != "abcdef" {
		t.Errorf("the process got %q, %v", all, err)
	}
	if got := f.hears(func(s inputStateBody) bool { return s.Ended }); got.Written != 6 {
		t.Errorf("at the end %+v", got)
	}
}

func TestTheShimHangsUpOnInputThatBreaksTheRules(t *testing.T) {
	s := newStation(t, Spec{JobID: "j-1", Stdio: StdioPipe}, unlimited)
	open := message{Type: typeOpenInput, OpenInput: &openInputBody{Writer: 1}}
	data := func(offset int64, n int) message {
		return message{Type: typeInput, Input: &inputBody{Offset: offset, Data: make([]byte, n)}}
	}
	for name, say := range map[string][]message{
		"a hole":                 {open, data(1, 1)},
		"a negative offset":      {open, data(-1, 3)},
		"input before it opens":  {data(0, 1)},
		"resize before it opens": {{Type: typeResize, Resize: &resizeBody{80, 24}}},
		"opened twice":           {open, open},
		"an end at a hole":       {open, {Type: typeEndInput, EndInput: &endInputBody{Offset: 9}}},
		"no body":                {open, {Type: typeInput}},
	} {
		conn, err := dial(s.h.dir)
		if err != nil {
			t.Fatal(err)
		}
		c := &talk{t, conn}
		for _, m := range say {
			c.say(m)
		}
		if !c.hungUp() {
			t.Errorf("%s: the shim goes on", name)
		}
		_ = conn.Close()
	}
	// More than was allowed, which is what the pipe and the shim take.
	c := s.talk(t, 1)
	for at := int64(0); at < pipeBuffer+2*feederBuffer; at += 8192 {
		if send(c.conn, data(at, 8192)) != nil {
			break
		}
	}
	if !c.hungUp() {
		t.Error("more than was allowed: the shim goes on")
	}
	if state, _ := s.attached.feeder.state(1); state.Accepted > pipeBuffer+feederBuffer+8192 || state.Accepted < feederBuffer {
		t.Errorf("took %+v", state)
	}
}

func TestTheEndOfTheJobIsTheEndOfItsInput(t *testing.T) {
	s := newStation(t, Spec{JobID: "j-1", Stdio: StdioPipe}, unlimited)
	c := s.talk(t, 1)
	c.hears(whatever)
	s.stop()
	if got := c.hears(whatever); got.Code != inputGone || !c.hungUp() {
		t.Errorf("%+v", got)
	}
}

// TestASizeThatComesBeforeTheStartIsTheTerminalsFromTheFirstMoment launches as the supervisor does.
func TestASizeThatComesBeforeTheStartIsTheTerminalsFromTheFirstMoment(t *testing.T) {
	needsTerminal(t)
	spec := Spec{JobID: "j-1", Kind: KindJob, Stdio: StdioTTY, Command: []string{"stty", "size"}, Cwd: "/", Env: []string{"PATH=" + os.Getenv("PATH"), "RC_TTY_SIZE=100x30"}}
	attached, err := newAttachment(spec, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if got := attached.size(); got != (Size{100, 30}) {
		t.Errorf("size %v", got)
	}
	srv := &server{board: newBoard(), attached: attached, log: slog.New(slog.DiscardHandler)}
	l := &line{opened: make(chan struct{}, 1)}
	for _, m := range []message{
		{Type: typeOpenInput, OpenInput: &openInputBody{Writer: 2}},
		{Type: typeResize, Resize: &resizeBody{Cols: 0, Rows: 9}}, // no size
		{Type: typeResize, Resize: &resizeBody{Cols: 132, Rows: 50}},
	} {
		if !srv.attended(l, m) {
			t.Fatalf("refused: %+v", m)
		}
	}
	job, err := launch(spec, nil, attached.size(), syscall.ForkExec)
	if err != nil {
		t.Fatal(err)
	}
	defer job.closeOurs()
	var status unix.WaitStatus
	for {
		if _, err = unix.Wait4(job.id.PID, &status, 0, nil); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	room := make([]byte, 100)
	n, err := unix.Read(job.stdout, room)
	if got := string(room[:max(0, n)]); got != "50 132\r\n" || status.ExitStatus() != 0 {
		t.Errorf("%q, %v, exit %d", got, err, status.ExitStatus())
	}
}

func TestOpeningAnInputEndsWithItsContext(t *testing.T) {
	s := newStation(t, Spec{JobID: "j-1", Stdio: StdioPipe}, func() int { return 0 })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := s.h.Input(ctx, 1); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
