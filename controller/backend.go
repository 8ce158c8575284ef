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

// Attached implements api.Backend.
func (c *Controller) Attached(host string) bool { return c.hub.Attached(host) }

// Forward implements api.Backend.
func (c *Controller) Forward(nodeID string) http.RoundTripper { return c.peerClient.To(nodeID) }

// Read implements api.Backend.
func (c *Controller) Read(ctx context.Context, o api.ReadOptions) (*fsm.View, api.ReadInfo, error) {
	if o.Stale {
		return c.readStale(ctx)
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
		info.Heard = c.ages()
	}
	return view, info, nil
}

func (c *Controller) readStale(ctx context.Context) (*fsm.View, api.ReadInfo, error) {
	reading, err := c.node.Read(ctx, raftnode.Stale)
	if err != nil {
		return nil, api.ReadInfo{}, err
	}
	view := c.machine.View()
	return view, api.ReadInfo{Leader: c.Leader().ID, Age: reading.Age}, nil
}

// readWithHeard asks the leader for its index and for whom it heard in one
// call, and waits for this node's own state.
func (c *Controller) readWithHeard(ctx context.Context, leader string) (*fsm.View, api.ReadInfo, error) {
	answer, err := c.peerClient.ReadIndex(ctx, leader, true)
	if err != nil {
		return nil, api.ReadInfo{}, err
	}
	if err := c.node.WaitIndex(ctx, answer.Index); err != nil {
		return nil, api.ReadInfo{}, err
	}
	info := api.ReadInfo{Leader: leader, Now: time.UnixMilli(answer.NowMS), Heard: map[string]time.Duration{}}
	for host, ms := range answer.HeardMS {
		info.Heard[host] = time.Duration(ms) * time.Millisecond
	}
	return c.machine.View(), info, nil
}

// ages lists how long ago each host was heard, on the leader.
func (c *Controller) ages() map[string]time.Duration {
	c.live.Attend(c.hub.Contacts())
	return c.live.Ages(time.Now(), c.machine.View().Agents())
}

// now returns the cluster's now, run on from the last entry by this process's
// monotonic clock: an idle log's stands still.
func (c *Controller) now(view *fsm.View) time.Time {
	now := time.UnixMilli(view.NowMS())
	if at := c.lastApply.Load(); at != nil {
		now = now.Add(time.Since(*at))
	}
	return now
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
		Now: time.UnixMilli(view.NowMS()).UTC(), UptimeMS: view.UptimeMS(), Counts: counts(view),
		Agents: len(view.Agents()), Alarms: c.alarmed(),
	}
	switch status.State {
	case raftnode.Forming:
		s.State, s.Waiting = string(status.State), status.Detail
	case raftnode.Halted:
		s.State, s.Halted = string(status.State), status.Detail
	}
	if epoch, ok := c.node.Epoch(); ok {
		s.HoldoffMS = max(0, view.Settings().HoldoffMS-time.Since(epoch.Started).Milliseconds())
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
			peer.Leader, peer.Self = m.ID == leader, m.ID == c.config.NodeID
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
