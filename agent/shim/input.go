package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"rcd/internal/backlog"
)

// Errors of an Input. None of them says that anything was written twice or out of order; Acked says how far it was written.
var (
	// ErrNoInput says that the job takes no input: it is on neither a terminal nor a pipe.
	ErrNoInput = errors.New("the job takes no input")
	// ErrOtherWriter says that a writer with a higher number has taken the input over.
	ErrOtherWriter = errors.New("another writer has taken over the job's input")
	// ErrInputElsewhere says that input went on that came from another Input of the same number: one that this one has replaced, and whose last bytes were still
	// on their way, so that whoever opens the input once more goes on well.
	ErrInputElsewhere = errors.New("input of the same writer has come another way")
	// ErrInputGone says that nobody reads the input any more: the process has closed it, the input has ended, or the job has.
	ErrInputGone = errors.New("nobody reads the job's input any more")
	// ErrInputOffset says that the input has a hole: it begins behind Next.
	ErrInputOffset = errors.New("the job's input does not go on there")
)

const (
	// frugalChunk is how much input goes into one message to a shim of an earlier release, which takes messages of 16 KiB, and bulkChunk to others. One that
	// lets more than frugalBuffer be sent before it is written is none of an earlier release.
	frugalChunk = 8 << 10
	bulkChunk   = 64 << 10
	// inputBuffer is how much input an Input holds that the shim has not taken, unless Widen has made that more.
	inputBuffer = 64 << 10
)

// Input is a writer's hold on the input of a job. It comes back to the job's shim by itself when the connection is lost, and nothing is lost or written twice
// by that. Safe for concurrent use. It must be closed, which does not end the job's input.
type Input struct {
	h      *Handle
	writer uint64
	cancel context.CancelFunc
	done   chan struct{}
	nudge  chan struct{} // holds one wake-up for the sender

	mu      sync.Mutex
	changed chan struct{}  // guarded by mu; closed and replaced at each change
	opened  bool           // guarded by mu; the shim has let this writer in
	state   inputStateBody // guarded by mu; as told last
	buf     backlog.Bytes  // guarded by mu; from state.Accepted on, at most bound
	bound   int            // guarded by mu
	ending  bool           // guarded by mu; the input ends behind buf
	size    Size           // guarded by mu; wished for the terminal, zero if none
	err     error          // guarded by mu; why it is over
}

// Input opens the job's input for a writer, and returns once its shim has let that in. The number orders the writers of a job: one with a higher number than
// all before takes over. The offsets are those of the job, whoever writes: a new writer goes on at Next, and one that comes back under its number, with an
// agent started again in between perhaps, may repeat what is not acked. Errors: ErrNoInput, ErrOtherWriter, ErrInputGone, or ctx's; ctx bounds the life of
// the Input, too.
func (h *Handle) Input(ctx context.Context, writer uint64) (*Input, error) {
	in, err := h.begunInput(ctx, writer)
	if err != nil {
		return nil, err
	}
	if err := in.letIn(); err != nil {
		in.Close()
		return nil, err
	}
	return in, nil
}

// begunInput returns an Input that has yet to be let in.
func (h *Handle) begunInput(ctx context.Context, writer uint64) (*Input, error) {
	if h.order.Spec.Stdio == StdioLog {
		return nil, ErrNoInput
	}
	ctx, cancel := context.WithCancel(ctx)
	in := &Input{h: h, writer: writer, cancel: cancel, done: make(chan struct{}), nudge: make(chan struct{}, 1), changed: make(chan struct{}), bound: inputBuffer}
	go in.run(ctx)
	return in, nil
}

// letIn waits until the shim has let the writer in, or says why it does not.
func (in *Input) letIn() error {
	for {
		in.mu.Lock()
		opened, err, changed := in.opened, in.err, in.changed
		in.mu.Unlock()
		if opened || err != nil {
			return err
		}
		<-changed // comes with ctx's end, too
	}
}

// Next returns the offset at which Write goes on.
func (in *Input) Next() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.next()
}

// next is Next for a caller who holds mu.
func (in *Input) next() int64 { return in.state.Accepted + int64(in.buf.Len()) }

// Widen has Write take up to so many bytes that the shim has not, if that is more than before.
func (in *Input) Widen(bytes int) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.bound = max(in.bound, bytes)
	close(in.changed)
	in.changed = make(chan struct{})
}

// Acked returns the offset before which everything has been written to the process. What lies between that and Next may still be lost with the job, and with
// nothing else once the shim has it.
func (in *Input) Acked() int64 {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.state.Written
}

// Wait returns Acked as soon as it is more than since. The error is why the input is over, or ctx's.
func (in *Input) Wait(ctx context.Context, since int64) (int64, error) {
	for {
		in.mu.Lock()
		acked, err, changed := in.state.Written, in.err, in.changed
		in.mu.Unlock()
		if acked > since {
			return acked, nil
		}
		if err != nil {
			return acked, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return acked, ctx.Err()
		}
	}
}

// Write adds p, which begins at offset, to the input. What lies before Next has been taken earlier and is passed over. It waits while 64 KiB of this Input,
// or what Widen said, are on their way, and returns when it has taken all of p, not when that is written: Acked says that. After ctx's error a part may have been taken, and
// the same call may be repeated. Other errors: ErrInputOffset, and why the input is over. It keeps nothing of p.
func (in *Input) Write(ctx context.Context, offset int64, p []byte) error {
	for {
		in.mu.Lock()
		known, room, err, changed := in.next()-offset, in.bound-in.buf.Len(), in.err, in.changed
		if err == nil && known >= 0 && known < int64(len(p)) && in.ending {
			err = ErrInputGone
		}
		switch {
		case err != nil, known >= int64(len(p)):
			in.mu.Unlock()
			return err
		case known < 0:
			in.mu.Unlock()
			return fmt.Errorf("%w: at %d, and %d is next", ErrInputOffset, offset, offset+known)
		case room > 0:
			n := min(int64(room), int64(len(p))-known)
			in.buf.Add(p[known : known+n])
			in.mu.Unlock()
			in.wake()
			continue
		}
		in.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// CloseInput says that the input ends at offset, which is Next; a pipe is closed then once all has been written. It may be repeated, and says nothing to a
// terminal. Errors: ErrInputOffset, and why the input is over.
func (in *Input) CloseInput(offset int64) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err != nil {
		return in.err
	}
	if next := in.next(); offset != next {
		return fmt.Errorf("%w: the end at %d, and %d is next", ErrInputOffset, offset, next)
	}
	in.ending = in.h.order.Spec.Stdio == StdioPipe
	in.wake()
	return nil
}

// Resize gives the job's terminal a size; the last one wished for counts. It returns at once.
func (in *Input) Resize(size Size) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.size = size
	in.wake()
}

// Close lets go of the input and waits for the Input's goroutine. What the shim has not taken yet is not written.
func (in *Input) Close() {
	in.cancel()
	<-in.done
}

func (in *Input) wake() {
	select {
	case in.nudge <- struct{}{}:
	default:
	}
}

// run keeps the connection to the shim until the input is over.
func (in *Input) run(ctx context.Context) {
	defer close(in.done)
	for pause := firstRedial; ; pause = min(pause*2, lastRedial) {
		conn, err := dial(in.h.dir)
		if err == nil {
			if in.connected(ctx, conn) {
				pause = firstRedial
			}
		}
		select {
		case <-ctx.Done():
			in.over(ctx.Err())
		case <-in.h.ended:
			in.over(ErrInputGone)
		case <-time.After(pause):
		}
		in.mu.Lock()
		err = in.err
		in.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (in *Input) over(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err == nil {
		in.err = err
	}
	close(in.changed)
	in.changed = make(chan struct{})
}

// connected writes on one connection until that ends, and tells whether the shim has let the writer in on it.
func (in *Input) connected(ctx context.Context, conn net.Conn) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	m, err := receive(conn)
	if err != nil || m.Type != typeHello || m.Hello == nil || m.Hello.JobID != in.h.order.Spec.JobID || m.Hello.Version > protocolVersion {
		return false
	}
	if send(conn, message{Type: typeOpenInput, OpenInput: &openInputBody{Writer: in.writer}}) != nil || !in.receive(conn) {
		return false
	}
	var receiving sync.WaitGroup
	defer receiving.Wait()
	defer cancel()
	receiving.Go(func() {
		defer cancel()
		for in.receive(conn) {
		}
	})
	in.send(ctx, conn)
	return true
}

// receive takes the next state, passing over statuses that were on their way. False if the connection, or the input, is over.
func (in *Input) receive(conn net.Conn) bool {
	for {
		m, err := receive(conn)
		switch {
		case err != nil:
			return false
		case m.Type == typeStatus:
		case m.Type == typeInputState && m.InputState != nil:
			return in.heard(*m.InputState)
		default:
			return false
		}
	}
}

// heard takes the shim's word, and tells whether the input goes on.
func (in *Input) heard(state inputStateBody) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	taken := state.Accepted - in.state.Accepted
	switch {
	case !in.opened:
	case taken < 0 || taken > int64(in.buf.Len()):
		// Input that this Input never had.
		in.err = ErrInputElsewhere
	default:
		in.buf.Drop(int(taken))
	}
	switch {
	case state.Code == inputTaken:
		in.err = ErrOtherWriter
	case state.Code != "":
		in.err = ErrInputGone
	}
	in.opened = in.opened || in.err == nil
	in.state, in.ending = state, in.ending || state.Ended
	close(in.changed)
	in.changed = make(chan struct{})
	in.wake()
	return in.err == nil
}

// sent is what one connection has been told.
type sent struct {
	offset int64
	size   Size
	ended  bool
}

// send sends what is due, and pings, until ctx ends or the connection fails.
func (in *Input) send(ctx context.Context, conn net.Conn) {
	ping := time.NewTicker(keepalive)
	defer ping.Stop()
	var told sent
	for {
		if m, ok := in.due(&told); ok {
			if send(conn, m) != nil {
				return
			}
			continue
		}
		select {
		case <-in.nudge:
		case <-ping.C:
			if send(conn, message{Type: typePing}) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// due returns the next message to send, and notes that it was.
func (in *Input) due(told *sent) (message, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	told.offset = max(told.offset, in.state.Accepted)
	end := min(in.next(), in.state.Limit)
	chunk := frugalChunk
	if in.state.Limit-in.state.Written > frugalBuffer {
		chunk = bulkChunk
	}
	switch {
	case in.size != Size{} && told.size != in.size:
		told.size = in.size
		return message{Type: typeResize, Resize: &resizeBody{Cols: in.size.Cols, Rows: in.size.Rows}}, true
	case told.offset < end:
		from := told.offset
		data := in.buf.From(int(from-in.state.Accepted), min(chunk, int(end-from)))
		told.offset += int64(len(data))
		return message{Type: typeInput, Input: &inputBody{Offset: from, Data: data}}, true
	case in.ending && !told.ended && told.offset == in.next() && !in.state.Ended:
		told.ended = true
		return message{Type: typeEndInput, EndInput: &endInputBody{Offset: told.offset}}, true
	}
	return message{}, false
}
