package controller

import (
	"context"
	"fmt"
	"net"
	"time"

	"rcd/api"
	"rcd/model"
	"rcd/raftnode"
	"rcd/relay"
	"rcd/wire"
)

// attachProtocol is the first protocol of agents whose streams take input.
const attachProtocol = 3

// windowProtocol is the first protocol of agents that can be asked for a window
// of input. An earlier one takes the question for a broken stream.
const windowProtocol = 4

// Attach implements api.Backend: a stream from the agent that has the job, on
// which the client's end and the agent's speak to each other.
func (c *Controller) Attach(ctx context.Context, job *model.Job, offset int64, open wire.StreamOpen) (net.Conn, error) {
	if !c.Leader().Self {
		return nil, fmt.Errorf("attach to %s: %w", job.ID(), raftnode.ErrNotLeader)
	}
	open, err := askable(job, open, c.hub.Protocol(job.Host))
	if err != nil {
		return nil, err
	}
	conn, err := c.hub.OpenStream(ctx, job.Host)
	if err != nil {
		return nil, fmt.Errorf("attach to %s: %w: %w", job.ID(), api.ErrHostAway, err)
	}
	if err := relay.Ask(conn, offset, open); err != nil {
		conn.Close()
		return nil, fmt.Errorf("attach to %s: %w: %w", job.ID(), api.ErrHostAway, err)
	}
	_ = conn.SetWriteDeadline(time.Time{})
	return cutStream{conn}, nil
}

// askable returns what of open the agent of a job's host can be asked for, which
// speaks that protocol, 0 if it is not there.
func askable(job *model.Job, open wire.StreamOpen, protocol int) (wire.StreamOpen, error) {
	switch {
	case protocol == 0:
		return open, fmt.Errorf("attach to %s: %w", job.ID(), api.ErrHostAway)
	case protocol < attachProtocol:
		return open, &wire.StreamError{Code: wire.CodeNotAttachable,
			Message: fmt.Sprintf("the agent of host %s is of an earlier release, which takes no input; upgrade it, the job goes on meanwhile", job.Host)}
	case protocol < windowProtocol:
		open.Window = 0
	}
	return open, nil
}

// cutStream frees a blocked Read and Write when it is closed, which a yamux
// stream by itself does not.
type cutStream struct{ net.Conn }

// Close ends the stream and every call on it.
func (c cutStream) Close() error {
	_ = c.SetDeadline(time.Unix(1, 0))
	return c.Conn.Close()
}
