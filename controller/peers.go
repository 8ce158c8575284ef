package controller

import (
	"context"
	"fmt"
	"time"

	"rcd/api"
	"rcd/raftnode"
	"rcd/wire"
)

// ReadIndex implements api.Internal.
func (c *Controller) ReadIndex(ctx context.Context, heard bool) (api.ReadIndex, error) {
	if !c.Leader().Self {
		return api.ReadIndex{}, fmt.Errorf("read index: %w", raftnode.ErrNotLeader)
	}
	reading, err := c.node.Read(ctx, raftnode.Linearizable)
	if err != nil {
		return api.ReadIndex{}, err
	}
	view := c.machine.View()
	out := api.ReadIndex{Index: reading.Index, Term: reading.Term, NowMS: c.now(view).UnixMilli()}
	if heard {
		ages, old := c.heard(view)
		if old != 0 {
			return api.ReadIndex{}, fmt.Errorf("read index: %w", raftnode.ErrNotLeader)
		}
		out.HeardMS = inMS(ages)
	}
	return out, nil
}

// Contacts implements api.Internal: contact with any controller counts.
func (c *Controller) Contacts(_ context.Context, report api.ContactReport) (api.ContactAnswer, error) {
	if !c.Leader().Self {
		return api.ContactAnswer{}, fmt.Errorf("take contacts of %s: %w", report.Node, raftnode.ErrNotLeader)
	}
	now := time.Now()
	for _, a := range report.Agents {
		c.live.Hear(a.Host, a.Instance, now.Add(-time.Duration(a.AgoMS)*time.Millisecond))
	}
	if m := c.member(report.Node); m != nil {
		c.words.take(report.Node, word{report.Incarnation, report.Supports, report.Build})
		if m.Voter { // a majority is one of voters
			c.reach.reported(report.Node, now)
			c.clocks.report(report.Node, time.UnixMilli(report.WallMS).Sub(now), 0)
		}
	}
	view := c.machine.View()
	answer := api.ContactAnswer{Clocks: []api.PeerClock{{Node: c.config.NodeID}}, NowMS: c.now(view).UnixMilli()}
	if report.AskHeard {
		ages, old := c.heard(view)
		if old != 0 {
			return api.ContactAnswer{}, fmt.Errorf("take contacts of %s: %w", report.Node, raftnode.ErrNotLeader)
		}
		answer.HeardMS = inMS(ages)
	}
	if c.webhooks != nil {
		answer.WebhooksSent = c.webhooks.outbox.mark()
	}
	for node, r := range c.clocks.known() {
		answer.Clocks = append(answer.Clocks, api.PeerClock{
			Node: node, OffsetMS: r.offset.Milliseconds(), AgoMS: time.Since(r.at).Milliseconds(),
		})
	}
	return answer, nil
}

// reportContacts tells the leader, while there is one and it is another node,
// whom this node hears, until ctx ends.
func (c *Controller) reportContacts(ctx context.Context) {
	tick := time.NewTicker(contactEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		leader := c.Leader()
		if leader.ID == "" || leader.ID == c.config.NodeID {
			continue
		}
		if err := c.reportTo(ctx, leader.ID); err != nil {
			c.log.Debug("report contacts", "leader", leader.ID, "err", err)
		}
	}
}

func (c *Controller) reportTo(ctx context.Context, leader string) error {
	now := time.Now()
	self := c.ownWord()
	report := api.ContactReport{
		Node: c.config.NodeID, WallMS: now.UnixMilli(), Agents: []api.Contact{},
		Incarnation: self.incarnation, Supports: self.supports, Build: self.build, AskHeard: c.told.old(now),
	}
	for _, h := range c.hub.Contacts() {
		if ago := now.Sub(h.LastHeard); ago < 2*contactEvery || h.Attached {
			report.Agents = append(report.Agents, api.Contact{Host: h.Host, Instance: h.Instance, AgoMS: ago.Milliseconds()})
		}
	}
	ctx, cancel := context.WithTimeout(ctx, contactEvery)
	defer cancel()
	answer, err := c.peerClient.Contacts(ctx, leader, report)
	if err != nil {
		return err
	}
	if answer.NowMS > 0 {
		c.told.leaderSays(time.UnixMilli(answer.NowMS))
	}
	if answer.HeardMS != nil {
		c.told.take(c.machine.View(), fromMS(answer.HeardMS), now)
	}
	if answer.WebhooksSent != nil && c.webhooks != nil {
		c.webhooks.outbox.sent(*answer.WebhooksSent)
	}
	// The leader's offsets are from its own clock; how far that is from ours
	// is what it says of us.
	var base time.Duration
	for _, p := range answer.Clocks {
		if p.Node == c.config.NodeID {
			base = -time.Duration(p.OffsetMS) * time.Millisecond
		}
	}
	for _, p := range answer.Clocks {
		c.clocks.report(p.Node, base+time.Duration(p.OffsetMS)*time.Millisecond, time.Duration(p.AgoMS)*time.Millisecond)
	}
	return nil
}

// Peer implements api.Internal.
func (c *Controller) Peer() wire.RaftPeer {
	stats := c.node.Stats()
	return wire.RaftPeer{
		Halted: c.Halted(), ID: c.config.NodeID, Leader: c.Leader().Self, Voter: c.isVoter(), Address: c.addressOf(c.config.NodeID), HTTP: c.config.HTTP,
		Reachable: true, LastLog: stats.LastIndex, Applied: c.machine.Index(), Term: stats.Term,
	}
}

func (c *Controller) isVoter() bool {
	m := c.member(c.config.NodeID)
	return m != nil && m.Voter
}

// member returns a controller of the raft configuration, or nil.
func (c *Controller) member(id string) *raftnode.Member {
	for _, m := range c.node.Members() {
		if m.ID == id {
			return &m
		}
	}
	return nil
}
