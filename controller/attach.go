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

// Attach implements api.Backend: a stream from the agent that has the job, on
// which the client's end and the agent's speak to each other.
func (c *Controller) Attach(ctx context.Context, job *model.Job, offset int64, open wire.StreamOpen) (net.Conn, error) {
	if !c.Leader().Self {
		return nil, fmt.Errorf("attach to %s: %w", job.ID(), raftnode.ErrNotLeader)
	}
	switch protocol := c.hub.Protocol(job.Host); {
	case protocol == 0:
		return nil, fmt.Errorf("attach to %s: %w", job.ID(), api.ErrHostAway)
	case protocol < attachProtocol:
		return nil, &wire.StreamError{Code: wire.CodeNotAttachable,
			Message: fmt.Sprintf("the agent of host %s is of an earlier release, which takes no input; upgrade it, the job goes on meanwhile", job.Host)}
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

// cutStream frees a blocked Read and Write when it is closed, which a yamux
// stream by itself does not.
type cutStream struct{ net.Conn }

// Close ends the stream and every call on it.
func (c cutStream) Close() error {
	_ = c.SetDeadline(time.Unix(1, 0))
	return c.Conn.Close()
}
