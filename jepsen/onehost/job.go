package onehost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"sort"
	"sync"
	"syscall"

	"rcd/relay"
	"rcd/wire"
)

// job is one job and its process. All fields are guarded by the host's mutex.
type job struct {
	wire.Job
	host   *Host
	cmd    *exec.Cmd // nil for one without a process
	killed string    // why it was killed
	done   chan struct{}

	out    []relay.Data
	length int64
	grown  chan struct{} // closed and replaced whenever anything changes

	writer   uint64
	accepted int64  // input that has come
	pending  []byte // of it, not yet written to the process
	eof      bool
	taken    int64 // input that the process's pipe has
}

// wake tells whoever waits that something has changed. The caller holds mu.
func (j *job) wake() {
	close(j.grown)
	j.grown = make(chan struct{})
}

// start runs the job. The caller holds mu.
func (h *Host) start(j *job, req wire.SubmitRequest) error {
	command := req.Command
	if h.Instead != nil {
		command = h.Instead(command)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = h.Home
	cmd.Env = []string{"PATH=" + h.Path, "HOME=" + h.Home}
	for name, value := range req.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	j.cmd = cmd
	var reading sync.WaitGroup
	reading.Go(func() { j.print(stdout, wire.StreamStdout) })
	reading.Go(func() { j.print(stderr, wire.StreamStderr) })
	go j.feed(stdin)
	go func() {
		defer close(j.done)
		state, _ := cmd.Process.Wait() // cmd.Wait would not wait for the pipes
		h.mu.Lock()
		j.signal() // what it has left behind
		h.mu.Unlock()
		reading.Wait()
		h.mu.Lock()
		defer h.mu.Unlock()
		code := state.ExitCode()
		switch {
		case j.killed != "":
			h.finish(j, "killed", j.killed, nil)
		case code == 0:
			h.finish(j, "succeeded", "", &code)
		default:
			h.finish(j, "failed", "", &code)
		}
	}()
	return nil
}

// signal ends the job's process group. The caller holds mu.
func (j *job) signal() {
	if j.cmd != nil {
		_ = syscall.Kill(-j.cmd.Process.Pid, syscall.SIGKILL)
	}
}

// end ends the job and waits for it.
func (j *job) end() {
	j.host.mu.Lock()
	if j.FinishedAt == nil {
		j.signal()
	}
	j.host.mu.Unlock()
	<-j.done
}

func (j *job) print(r io.Reader, stream wire.Stream) {
	p := make([]byte, 32<<10)
	for {
		n, err := r.Read(p)
		if n > 0 {
			j.host.mu.Lock()
			j.out = append(j.out, relay.Data{Offset: j.length, Stream: stream, Bytes: append([]byte(nil), p[:n]...)})
			j.length += int64(n)
			j.wake()
			j.host.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// feed writes input to the process as it comes.
func (j *job) feed(w io.WriteCloser) {
	defer w.Close()
	for {
		j.host.mu.Lock()
		pending, eof, grown := j.pending, j.eof, j.grown
		if j.host.Stalled {
			pending, eof = nil, false
		}
		j.pending = j.pending[len(pending):]
		j.host.mu.Unlock()
		if len(pending) > 0 {
			if _, err := w.Write(pending); err != nil {
				return
			}
			j.host.mu.Lock()
			j.taken += int64(len(pending))
			j.wake()
			j.host.mu.Unlock()
			continue
		}
		if eof {
			return
		}
		select {
		case <-grown:
		case <-j.done:
			return
		}
	}
}

// errCut breaks a link.
var errCut = errors.New("the link breaks")

func (h *Host) attach(w http.ResponseWriter, r *http.Request) {
	var j *job
	h.find(w, r, func(found *job) { j = found })
	if j == nil {
		return
	}
	q := r.URL.Query()
	var from int64
	_, _ = fmt.Sscan(q.Get("offset"), &from)
	conn, err := relay.Upgrade(w, r)
	if err != nil {
		refuse(w, 426, "upgrade_required", err.Error())
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	var acking sync.WaitGroup
	defer acking.Wait()
	defer cancel()
	h.mu.Lock()
	s := &seat{job: j, next: from, window: wire.InputWindow}
	if _, _ = fmt.Sscan(q.Get("window"), &s.granted); s.granted > 0 {
		s.granted = max(wire.InputWindow, min(s.granted, wire.MaxInputWindow))
		s.window = int64(s.granted)
	}
	if _, _ = fmt.Sscan(q.Get("writer"), &s.writer); q.Get("take_over") == "true" {
		j.writer++
		s.writer = j.writer
		j.wake()
	}
	if s.left = -1; h.Cuts > 0 {
		h.Cuts--
		s.left = h.Cut
	}
	h.mu.Unlock()
	if s.writer > 0 {
		acking.Go(func() { s.ack(ctx, conn) })
	}
	_ = relay.Send(ctx, conn, from, s, relay.SendOptions{Input: s.take})
}

// seat is one link of a client.
type seat struct {
	job    *job
	next   int64
	writer uint64
	// What may be under way without an ack, and how much of that the acks say:
	// 0 if nobody asked.
	window  int64
	granted uint32
	left    int // bytes until it breaks; negative: it does not
}

// spend counts bytes, and reports whether the link breaks by them. The caller
// holds mu.
func (s *seat) spend(n int) bool {
	if s.left < 0 {
		return false
	}
	s.left = max(0, s.left-n)
	return s.left == 0
}

// Next implements relay.Source.
func (s *seat) Next(ctx context.Context) (relay.Record, error) {
	j := s.job
	for {
		j.host.mu.Lock()
		i := sort.Search(len(j.out), func(i int) bool { return j.out[i].Offset+int64(len(j.out[i].Bytes)) > s.next })
		if i < len(j.out) {
			d := j.out[i]
			s.next = d.Offset + int64(len(d.Bytes))
			cut := s.spend(len(d.Bytes))
			j.host.mu.Unlock()
			if cut {
				return nil, errCut
			}
			return d, nil
		}
		state, over, length, grown := j.State, j.FinishedAt != nil, j.length, j.grown
		j.host.mu.Unlock()
		if over {
			return relay.End{Length: length, StreamEnd: wire.StreamEnd{State: state, Complete: true}}, nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (s *seat) take(frame wire.Frame) error {
	j := s.job
	j.host.mu.Lock()
	defer j.host.mu.Unlock()
	known := j.accepted - frame.Offset
	switch {
	case s.writer != j.writer:
		return nil
	case known < 0 || frame.Offset+int64(len(frame.Payload)) > j.taken+s.window:
		return fmt.Errorf("%w: input at %d, and %d is next", relay.ErrProtocol, frame.Offset, j.accepted)
	case frame.Type == wire.FrameEOF:
		j.eof = true
	case known < int64(len(frame.Payload)):
		fresh := frame.Payload[known:]
		j.pending = append(j.pending, fresh...)
		j.accepted += int64(len(fresh))
		j.host.sent += int64(len(fresh))
	}
	j.wake()
	if s.spend(len(frame.Payload)) {
		return errCut
	}
	return nil
}

// ack says how much of the input the process has.
func (s *seat) ack(ctx context.Context, conn net.Conn) {
	j := s.job
	for {
		j.host.mu.Lock()
		frame, grown := wire.AckFrame(wire.StreamStdin, j.taken, wire.StreamAck{Writer: j.writer, Window: s.granted}), j.grown
		j.host.mu.Unlock()
		if wire.WriteFrame(conn, frame) != nil {
			return
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return
		}
	}
}
