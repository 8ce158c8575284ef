package controller

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"rcd/api"
	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/raftnode"
	"rcd/raftnode/inspect"
	"rcd/wire"
)

var (
	_ api.Backend  = (*Controller)(nil)
	_ api.Internal = (*Controller)(nil)
)

// Propose implements api.Backend.
func (c *Controller) Propose(ctx context.Context, cmd []byte) (command.Result, uint64, error) {
	return c.node.Propose(ctx, cmd)
}

// Halted implements api.Backend.
func (c *Controller) Halted() string {
	status := c.node.Status()
	if status.State != raftnode.Halted {
		return ""
	}
	return strings.TrimPrefix(status.Detail, raftnode.ErrHalted.Error()+": ")
}

// Events implements api.Backend.
func (c *Controller) Events() *api.EventLog { return c.events }

// Attached implements api.Backend.
func (c *Controller) Attached(host string) bool { return c.hub.Attached(host) }

// Forward implements api.Backend.
func (c *Controller) Forward(nodeID string) http.RoundTripper { return c.peerClient.To(nodeID) }

// Read implements api.Backend.
func (c *Controller) Read(ctx context.Context, o api.ReadOptions) (*fsm.View, api.ReadInfo, error) {
	if o.Stale {
		return c.readStale(ctx, o.Heard)
	}
	leader := c.Leader()
	if !leader.Self && o.Heard && leader.ID != "" {
		return c.readWithHeard(ctx, leader.ID)
	}
	if _, err := c.node.Read(ctx, raftnode.Linearizable); err != nil {
		return nil, api.ReadInfo{}, err
	}
	view := c.machine.View()
	info := api.ReadInfo{Leader: c.Leader().ID, Now: c.now(view)}
	if o.Heard {
		info.Heard, info.HeardAge = c.heard(view)
		if info.HeardAge != 0 {
			// Another node vouched for the index, or leads since: it knows
			// whom it hears.
			return nil, api.ReadInfo{}, raftnode.ErrNotLeader
		}
	}
	return view, info, nil
}

func (c *Controller) readStale(ctx context.Context, heard bool) (*fsm.View, api.ReadInfo, error) {
	reading, err := c.node.Read(ctx, raftnode.Stale)
	if err != nil {
		return nil, api.ReadInfo{}, err
	}
	view := c.machine.View()
	info := api.ReadInfo{Leader: c.Leader().ID, Now: c.now(view), Age: reading.Age}
	if reading.Age < 0 {
		// Not since it was started. It may have heard one after the last entry
		// and before it was stopped, so this is the most that it can be.
		info.Age = info.Now.Sub(time.UnixMilli(view.NowMS()))
	}
	if heard {
		info.Heard, info.HeardAge = c.heard(view)
	}
	return view, info, nil
}

// readWithHeard asks the leader for its index and for whom it heard in one
// call, and waits for this node's own state.
func (c *Controller) readWithHeard(ctx context.Context, leader string) (*fsm.View, api.ReadInfo, error) {
	asked := time.Now()
	answer, err := c.peerClient.ReadIndex(ctx, leader, true)
	if err != nil {
		return nil, api.ReadInfo{}, err
	}
	if err := c.node.WaitIndex(ctx, answer.Index); err != nil {
		return nil, api.ReadInfo{}, err
	}
	c.told.leaderSays(time.UnixMilli(answer.NowMS))
	view, ages := c.machine.View(), fromMS(answer.HeardMS)
	c.told.take(view, ages, asked)
	return view, api.ReadInfo{Leader: leader, Now: c.now(view), Heard: ages}, nil
}

func fromMS(ms map[string]int64) map[string]time.Duration {
	ages := make(map[string]time.Duration, len(ms))
	for host, n := range ms {
		ages[host] = time.Duration(n) * time.Millisecond
	}
	return ages
}

func inMS(ages map[string]time.Duration) map[string]int64 {
	ms := make(map[string]int64, len(ages))
	for host, age := range ages {
		ms[host] = age.Milliseconds()
	}
	return ms
}

// RaftStatus implements api.Backend.
func (c *Controller) RaftStatus(context.Context) wire.RaftStatus {
	stats, status, self := c.node.Stats(), c.node.Status(), c.identity.Self()
	view := c.machine.View()
	leader := c.node.Leader()
	s := wire.RaftStatus{
		Node: c.config.NodeID, ClusterID: self.ClusterID, Generation: self.Generation,
		State: stats.State, Term: stats.Term, Leader: leader.ID, LeaderAddr: leader.Addr,
		LastLog: stats.LastIndex, Commit: stats.CommitIndex, Applied: stats.AppliedIndex, FSMIndex: view.Index(),
		Epoch: view.Term(), LastSnapshot: stats.SnapshotIndex, Digest: view.Digest().String(),
		Now: c.now(view).UTC(), UptimeMS: view.UptimeMS(), Counts: counts(view),
		Agents: len(view.Agents()), Alarms: c.alarmed(),
	}
	switch status.State {
	case raftnode.Forming:
		s.State, s.Waiting = string(status.State), status.Detail
	case raftnode.Halted:
		s.State, s.Halted = string(status.State), c.Halted()
	}
	if epoch, ok := c.node.Epoch(); ok {
		s.HoldoffMS = max(0, view.Settings().HoldoffMS-time.Since(epoch.Started).Milliseconds())
	}
	if store := c.copying.store.Load(); store != nil {
		u := store.Usage()
		s.OutputCopies = &wire.OutputCopies{Bytes: u.Bytes, Limit: u.Limit, Jobs: u.Copies, Complete: u.Complete, Stopped: u.Stopped}
	}
	for _, h := range c.hub.Contacts() {
		if h.Attached {
			s.Attached++
		}
	}
	return s
}

func counts(view *fsm.View) map[string]int {
	n := view.Counts()
	return map[string]int{
		"jobs_queued": n.Queued, "jobs_active": n.Active, "jobs_finished": n.Finished,
		"leases": n.Leases, "devices": n.Devices, "requests": n.Requests,
	}
}

// RaftPeers implements api.Backend.
func (c *Controller) RaftPeers(ctx context.Context) []wire.RaftPeer {
	members := c.node.Members()
	peers := make([]wire.RaftPeer, len(members))
	done := make(chan struct{})
	leader := c.node.Leader().ID
	for i, m := range members {
		go func() {
			defer func() { done <- struct{}{} }()
			peer := wire.RaftPeer{}
			if m.ID == c.config.NodeID {
				peer = c.Peer()
			} else if answer, err := c.peerClient.Peer(ctx, m.ID); err == nil {
				peer = answer
			}
			peer.ID, peer.Voter, peer.Address = m.ID, m.Voter, m.Addr
			peer.Self = m.ID == c.config.NodeID
			if leader != "" {
				peer.Leader = m.ID == leader
			} // else their own word: a halted node knows no leader
			peers[i] = peer
		}()
	}
	for range members {
		<-done
	}
	return peers
}

// RaftLog implements api.Backend.
func (c *Controller) RaftLog(since uint64, n int) (api.LogPage, error) {
	stats := c.node.Stats()
	page := api.LogPage{First: stats.FirstIndex, Last: stats.LastIndex, Commit: stats.CommitIndex}
	entries, err := inspect.Entries(c.node.LogReader(), since, n, stats.CommitIndex)
	if err != nil {
		return page, err
	}
	for _, e := range entries {
		page.Entries = append(page.Entries, api.LogEntry{
			Index: e.Index, Term: e.Term, At: e.Appended, Kind: string(e.Kind), Summary: membersText(e.Members), Data: e.Data,
		})
	}
	return page, nil
}

// membersText is the summary of a configuration entry.
func membersText(members []inspect.Member) string {
	var parts []string
	for _, m := range members {
		suffrage := "nonvoter"
		if m.Voter {
			suffrage = "voter"
		}
		parts = append(parts, fmt.Sprintf("%s %s at %s", suffrage, m.ID, m.Addr))
	}
	return strings.Join(parts, ", ")
}

// FeatureLevel returns the cluster's feature level as this node has applied it.
func (c *Controller) FeatureLevel() uint32 { return c.machine.View().FeatureLevel() }
