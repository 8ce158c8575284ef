package controller

import (
	"context"
	"fmt"
	"net"

	"rcd/api"
	"rcd/fsm/command"
	"rcd/internal/mux"
	"rcd/raftnode"
	"rcd/session"
	"rcd/wire"
)

// setRole publishes that this node has begun an epoch, or with nil that it has
// none any more.
func (c *Controller) setRole(own *session.Role) {
	c.leading.mu.Lock()
	defer c.leading.mu.Unlock()
	c.leading.role = own
	c.publishRole()
}

// followLeader publishes what raft says about the leader, until ctx ends.
func (c *Controller) followLeader(ctx context.Context) {
	leaders, stop := c.node.Watch()
	defer stop()
	for {
		select {
		case l, ok := <-leaders:
			if !ok {
				return
			}
			c.leading.mu.Lock()
			c.leading.last = l
			c.publishRole()
			c.leading.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// publishRole makes one Role of both sources; leading.mu is held. Nothing is
// published while nothing has changed: whoever waits takes a change for the end
// of what it relied on.
func (c *Controller) publishRole() {
	var role session.Role
	if own := c.leading.role; own != nil {
		role = *own
		role.Leader, role.Addr = c.config.NodeID, c.addressOf(c.config.NodeID)
	} else if l := c.leading.last; l.ID != c.config.NodeID {
		// Raft names this node before its epoch has begun, and for a moment
		// after it has ended: then nobody can be asked.
		role.Leader, role.Addr, role.Term = l.ID, l.Addr, l.Term
	}
	if old, _ := c.role.Get(); old != role {
		c.role.Set(role)
	}
}

// Leader implements api.Backend.
func (c *Controller) Leader() api.Leader {
	role, changed := c.role.Get()
	return api.Leader{ID: role.Leader, Term: role.Term, Self: role.Leading && role.Epoch.Err() == nil, Changed: changed}
}

// controllers lists the members with the addresses that others dial.
func (c *Controller) controllers() []wire.Controller {
	var all []wire.Controller
	for _, m := range c.node.Members() {
		all = append(all, wire.Controller{ID: m.ID, Addr: m.Addr})
	}
	if len(all) == 0 {
		for _, p := range c.config.Join {
			all = append(all, wire.Controller{ID: p.ID, Addr: p.Addr})
		}
	}
	return all
}

func (c *Controller) addressOf(nodeID string) string {
	for _, m := range c.controllers() {
		if m.ID == nodeID {
			return m.Addr
		}
	}
	if nodeID == c.config.NodeID {
		return c.config.Listen
	}
	return ""
}

// dialPeer opens a stream to another controller's internal handler.
func (c *Controller) dialPeer(ctx context.Context, dialer *mux.Dialer, nodeID string) (net.Conn, error) {
	addr := c.addressOf(nodeID)
	if addr == "" {
		return nil, fmt.Errorf("no address is known for controller %s", nodeID)
	}
	return dialer.Dial(ctx, addr, mux.Forward)
}

// propose encodes a command that nobody but this node asks for, and logs it. A
// result of stale_epoch comes back as ErrNotLeader: nothing happened, and a
// newer epoch speaks now.
func (c *Controller) propose(ctx context.Context, body any) (command.Result, uint64, error) {
	encoded, err := command.Encode(command.Request{}, body)
	if err != nil {
		return command.Result{}, 0, err
	}
	result, index, err := c.node.Propose(ctx, encoded)
	if err == nil && result.Code == command.StaleEpoch {
		err = raftnode.ErrNotLeader
	}
	return result, index, err
}
