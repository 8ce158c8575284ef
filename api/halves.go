package api

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"rcd/model"
	"rcd/relay"
	"rcd/wire"
)

// The ancestor's way to a terminal or a pipe: two requests, one for each
// direction, that do not resume. Both are made of the attach route's stream,
// on any node.

// maxKeyLine bounds one line of what is typed to a terminal.
const maxKeyLine = 1 << 20

// errGapInHalf breaks plain bytes off where some are missing.
var errGapInHalf = errors.New("output missing")

func (s *server) ttyOut(w http.ResponseWriter, r *http.Request, who Identity) error {
	return s.half(w, r, who, wire.StreamOpen{}, s.copyOut)
}

func (s *server) ttyIn(w http.ResponseWriter, r *http.Request, who Identity) error {
	return s.half(w, r, who, wire.StreamOpen{TakeOver: true, InputOnly: true, Window: wire.MaxInputWindow}, s.copyIn)
}

// half answers with what do makes of an attached stream.
func (s *server) half(w http.ResponseWriter, r *http.Request, who Identity, open wire.StreamOpen,
	do func(w http.ResponseWriter, r *http.Request, conn net.Conn, want output) error) error {
	run := func(w http.ResponseWriter, r *http.Request, want output, far io.ReadWriteCloser) error {
		s.outputHeaders(w, want)
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Connection", "close") // a half may end with its body unread
		control := http.NewResponseController(w)
		_ = control.EnableFullDuplex() // HTTP/1.1 only; else the body is read first
		w.WriteHeader(http.StatusOK)
		if err := control.Flush(); err != nil || far == nil {
			return err
		}
		// A pipe, because the way to the leader has no deadlines.
		near, mine := net.Pipe()
		var joined sync.WaitGroup
		defer joined.Wait()
		defer mine.Close()
		joined.Go(func() { splice(r.Context(), near, far) })
		return do(w, r, mine, want)
	}
	serve := func(w http.ResponseWriter, r *http.Request, want output) error {
		far, err := s.reach(r.Context(), want)
		if err != nil {
			return err
		}
		return run(w, r, want, far)
	}
	pass := func(w http.ResponseWriter, r *http.Request, resp *http.Response) error {
		if resp.StatusCode != http.StatusSwitchingProtocols {
			return s.passWhole(w, resp)
		}
		v, err := s.viewFor(r, false)
		if err != nil {
			return err
		}
		job, err := v.job(r.PathValue("id"))
		if err != nil {
			return err
		}
		return run(w, r, output{job: job, index: v.Index()}, resp.Body.(io.ReadWriteCloser)) // see passStream
	}
	wants := func(r *http.Request, _ Identity) (output, error) { return s.wantsHalf(r, open) }
	return s.output(w, r, who, wants, serve, pass)
}

// wantsHalf waits until the job is placed: the ancestor's clients come as soon
// as it has an ID. Whose it is they do not say, and were never asked.
func (s *server) wantsHalf(r *http.Request, open wire.StreamOpen) (output, error) {
	for {
		v, err := s.viewFor(r, false)
		if err != nil {
			return output{}, err
		}
		job, err := v.job(r.PathValue("id"))
		switch {
		case err != nil:
			return output{}, err
		case job.Stdio == model.StdioLogs:
			return output{}, refuse(http.StatusBadRequest, wire.CodeNotAttachable,
				"%s has neither a terminal nor a pipe; its output is stored: read its logs", job.ID())
		case job.State != model.JobQueued:
			open.Job, open.Follow, open.Attach = job.ID(), true, true
			return output{job: job, follow: true, index: v.Index(), submitter: job.Submitter, attach: &open}, nil
		}
		ctx, cancel := context.WithTimeout(r.Context(), defaultWait)
		s.await(ctx, interest{job: job.Number}, after(v.Index()))
		cancel()
		if err := r.Context().Err(); err != nil {
			return output{}, err
		}
	}
}

// copyOut writes the output as it comes.
func (s *server) copyOut(w http.ResponseWriter, r *http.Request, conn net.Conn, want output) error {
	out := newLogWriter(w)
	_, end, err := relay.Receive(r.Context(), conn, 0, relay.SinkFunc(func(_ context.Context, record relay.Record) error {
		switch record := record.(type) {
		case relay.Gap:
			return errGapInHalf
		case relay.Data:
			if _, err := out.Write(record.Bytes); err != nil {
				return err
			}
			return out.flush()
		}
		return nil
	}))
	if err == nil && !end.Complete {
		err = fmt.Errorf("%w: %s", errGapInHalf, end.Reason)
	}
	return err // breaks the answer off, so that it does not look whole
}

// copyIn writes what the body brings, until that ends or nobody takes it. The
// end of the body is the end of a pipe, which is waited for like all before it.
func (s *server) copyIn(w http.ResponseWriter, r *http.Request, conn net.Conn, want output) error {
	t := &typing{conn: conn, changed: make(chan struct{}, 1)}
	var receiving sync.WaitGroup
	defer receiving.Wait()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	receiving.Go(func() {
		defer cancel()
		dial := func(context.Context, int64) (relay.Conn, error) {
			if t.dialled {
				return nil, relay.Permanent(relay.ErrLinkLost)
			}
			t.dialled = true
			return conn, nil
		}
		nothing := relay.SinkFunc(func(context.Context, relay.Record) error { return nil })
		_, _, _ = relay.Follow(ctx, dial, 0, nothing, relay.FollowOptions{Input: t.heard})
	})
	// A body that says nothing must not keep the request open.
	defer context.AfterFunc(ctx, func() { _ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0)) })()
	if !t.wait(ctx, func() bool { return t.writer > 0 }) {
		return nil
	}
	t.next = t.acked
	var err error
	if want.job.Stdio == model.StdioTTY {
		err = t.keys(ctx, r.Body)
	} else {
		err = t.bytes(ctx, r.Body)
	}
	if err != nil {
		s.Logger.Debug("input ended early", "job", want.job.ID(), "err", err)
	}
	if want.job.Stdio == model.StdioTTY {
		t.wait(ctx, func() bool { return t.acked >= t.next })
		return nil
	}
	// However the body ended, nobody can go on with it: a process that waits for
	// more would wait for ever.
	if wire.WriteFrame(conn, wire.Frame{Type: wire.FrameEOF, Stream: wire.StreamStdin, Offset: t.next}) == nil {
		<-ctx.Done() // the end of the job: the host tells of nothing else that comes after the end of its input
	}
	return nil
}

// typing is what one request writes to a job.
type typing struct {
	conn    net.Conn
	dialled bool
	next    int64
	changed chan struct{} // holds one wake-up

	mu     sync.Mutex
	acked  int64  // guarded by mu
	window int64  // guarded by mu; how much may be sent behind acked
	writer uint64 // guarded by mu; 0 before the first ack
	over   bool   // guarded by mu
}

func (t *typing) heard(frame wire.Frame) {
	t.mu.Lock()
	ack, err := frame.Ack()
	switch {
	case err != nil, t.writer > 0 && ack.Writer != t.writer:
		t.over = true
	default:
		t.acked, t.writer, t.window = frame.Offset, ack.Writer, max(wire.InputWindow, int64(ack.Window))
	}
	t.mu.Unlock()
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// wait waits until done, which is called with mu held; false if that cannot
// come any more.
func (t *typing) wait(ctx context.Context, done func() bool) bool {
	for {
		t.mu.Lock()
		ok, over := done(), t.over
		t.mu.Unlock()
		if ok || over {
			return !over
		}
		select {
		case <-t.changed:
		case <-ctx.Done():
			return false
		}
	}
}

var errNobodyReads = errors.New("nobody reads the input any more")

// put writes p, as the acks allow.
func (t *typing) put(ctx context.Context, p []byte) error {
	const piece = 32 << 10
	for len(p) > 0 {
		n := min(len(p), piece)
		if !t.wait(ctx, func() bool { return t.next+int64(n) <= t.acked+t.window }) {
			return errNobodyReads
		}
		if err := wire.WriteFrame(t.conn, wire.Frame{Type: wire.FrameInput, Stream: wire.StreamStdin, Offset: t.next, Payload: p[:n]}); err != nil {
			return err
		}
		t.next += int64(n)
		p = p[n:]
	}
	return nil
}

// bytes writes a body as it is.
func (t *typing) bytes(ctx context.Context, body io.Reader) error {
	buf := make([]byte, passBuffer)
	for {
		n, err := body.Read(buf)
		if err := t.put(ctx, buf[:n]); err != nil {
			return err
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// keys writes a body of lines. One that is no JSON ends the input; of a type
// that is not known it is passed over.
func (t *typing) keys(ctx context.Context, body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, passBuffer), maxKeyLine)
	for lines.Scan() {
		var key struct {
			Type  string `json:"t"`
			Bytes []byte `json:"b"`
			Rows  uint16 `json:"rows"`
			Cols  uint16 `json:"cols"`
		}
		if len(lines.Bytes()) == 0 {
			continue
		}
		if json.Unmarshal(lines.Bytes(), &key) != nil {
			return nil
		}
		var err error
		switch key.Type {
		case "d":
			err = t.put(ctx, key.Bytes)
		case "r":
			err = wire.WriteFrame(t.conn, wire.ResizeFrame(t.next, wire.StreamResize{Rows: key.Rows, Cols: key.Cols}))
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}
