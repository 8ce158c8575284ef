package rig

import (
	"context"
	"fmt"
	"net"
	"sync"

	"rcd/relay"
	"rcd/wire"
)

// input is what has been typed to a pretended job, which prints it again.
type input struct {
	length int64
	writer uint64 // who may type
}

// serveAttached is ServeStream for a stream that attaches: a job that echoes.
func (h *Host) serveAttached(ctx context.Context, conn net.Conn, offset int64, open wire.StreamOpen, j *hostJob) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	options := relay.SendOptions{}
	var acking sync.WaitGroup
	if open.TakeOver || open.Writer > 0 {
		h.mu.Lock()
		writer := open.Writer
		if open.TakeOver {
			writer = j.input.writer + 1
		}
		j.input.writer = max(j.input.writer, writer)
		j.wake()
		h.mu.Unlock()
		options.Input = func(frame wire.Frame) error { return h.typed(j, writer, frame) }
		acking.Go(func() { h.ack(ctx, conn, j, min(open.Window, wire.MaxInputWindow)) })
	}
	_ = relay.Send(ctx, conn, offset, &hostSource{host: h, job: j, next: offset, follow: open.Follow}, options)
	cancel()
	acking.Wait()
}

func (h *Host) typed(j *hostJob, writer uint64, frame wire.Frame) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	known := j.input.length - frame.Offset
	switch {
	case writer < j.input.writer || frame.Type != wire.FrameInput || known >= int64(len(frame.Payload)):
		return nil
	case known < 0:
		return fmt.Errorf("%w: input at %d, and %d is next", relay.ErrProtocol, frame.Offset, j.input.length)
	}
	j.input.length += int64(len(frame.Payload)) - known
	j.output = append(j.output, frame.Payload[known:]...)
	j.wake()
	return nil
}

func (h *Host) ack(ctx context.Context, conn net.Conn, j *hostJob, window uint32) {
	for {
		h.mu.Lock()
		at, grown := j.input, j.grown
		h.mu.Unlock()
		if wire.WriteFrame(conn, wire.AckFrame(wire.StreamStdin, at.length, wire.StreamAck{Writer: at.writer, Window: window})) != nil {
			return
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return
		}
	}
}
