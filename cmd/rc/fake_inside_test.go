package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"sync"

	"rcd/relay"
	"rcd/wire"
)

// enter makes job one inside the hold that its submit names, or says why it
// cannot be.
func (c *controller) enter(w http.ResponseWriter, req *wire.SubmitRequest, job *fakeJob) bool {
	var hold *fakeJob
	for _, j := range c.jobs {
		if j.ID == req.Hold {
			hold = j
		}
	}
	switch {
	case hold == nil:
		refuse(w, 404, wire.CodeNotFound, "there is no job "+req.Hold+"; look with: rc jobs")
	case req.DeviceID != "" || req.Selector != "" || req.Priority != 0 || req.NoWait:
		refuse(w, 400, wire.CodeBadRequest, "a job inside a hold has no device, selector, priority or no_wait of its own")
	case hold.Kind != kindHold:
		refuse(w, 400, wire.CodeBadRequest, hold.ID+" is no hold")
	case hold.Submitter != req.Submitter:
		refuse(w, 403, "not_job_owner", "the hold belongs to "+hold.Submitter+"; use --as if that is you")
	case hold.FinishedAt != nil:
		refuse(w, 409, "hold_ended", "the hold has ended; take the device again")
	case hold.State == "queued":
		refuse(w, 409, "hold_waiting", "the hold is still queued; wait for it")
	default:
		job.Hold, job.DeviceID = hold.ID, hold.DeviceID
		return true
	}
	return false
}

// emptied ends what runs inside a hold that has ended.
func (c *controller) emptied(hold *fakeJob) {
	for _, job := range c.jobs {
		if job.Hold == hold.ID && job.FinishedAt == nil {
			job.kill("")
			job.KillReason, job.Origin = "hold "+hold.ID+" ended", ""
		}
	}
}

// heartbeat keeps the session of a hold.
func (c *controller) heartbeat(w http.ResponseWriter, r *http.Request) {
	var req wire.HeartbeatRequest
	_ = json.NewDecoder(r.Body).Decode(&req)
	c.mu.Lock()
	defer c.mu.Unlock()
	if job := c.own(w, r, req.Submitter, "job_ended"); job != nil {
		c.beats++
		reply(w, 200, wire.HeartbeatAnswer{State: job.State, SessionSeconds: job.SessionSeconds})
	}
}

// fakeInput is what a job of stdio pipe has been sent.
type fakeInput struct {
	mu   sync.Mutex
	data []byte
	eof  bool
	more chan struct{} // closed at each change
}

func (i *fakeInput) take(frame wire.Frame) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.eof = i.eof || frame.Type == wire.FrameEOF
	if frame.Type == wire.FrameInput {
		i.data = append(i.data, frame.Payload[max(int64(len(i.data))-frame.Offset, 0):]...)
	}
	close(i.more)
	i.more = make(chan struct{})
	return nil
}

func (i *fakeInput) state(from int) (rest []byte, eof bool, more chan struct{}) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return append([]byte(nil), i.data[from:]...), i.eof, i.more
}

// ack says how far input is, while the link lives.
func (i *fakeInput) ack(ctx context.Context, conn net.Conn) {
	for {
		data, _, more := i.state(0)
		if wire.WriteFrame(conn, wire.AckFrame(wire.StreamStdin, int64(len(data)), wire.StreamAck{Writer: 1})) != nil {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			return
		}
	}
}

// attach plays a job's command with the reader's input.
func (c *controller) attach(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	job := c.find(w, r)
	c.mu.Unlock()
	if job == nil {
		return
	}
	offset, _ := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	conn, err := relay.Upgrade(w, r)
	if err != nil {
		refuse(w, 426, "upgrade_required", err.Error())
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	in := &fakeInput{more: make(chan struct{})}
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { in.ack(ctx, conn) })
	s := &script{controller: c, job: job, follow: true, abort: func() { conn.Close() }, input: in}
	_ = relay.Send(ctx, conn, offset, s, relay.SendOptions{Input: in.take})
}

// cat is the next of a job's input as its output, nil once that has ended.
func (s *script) cat(ctx context.Context) (relay.Record, error) {
	for {
		rest, eof, more := s.input.state(s.read)
		switch {
		case len(rest) > 0:
			from := s.offset
			s.read += len(rest)
			s.offset += int64(len(rest))
			return relay.Data{Offset: from, Stream: wire.StreamStdout, Bytes: rest}, nil
		case eof:
			return nil, nil
		}
		select {
		case <-more:
		case <-s.job.killed:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
