package raftnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"rcd/internal/ident"
	"rcd/internal/mux"
)

// How often a node without a cluster asks the others: fast while they are
// likely just starting, then slow.
const (
	formFast      = 200 * time.Millisecond
	formSlow      = 2 * time.Second
	formFastTries = 50
)

const firstGeneration = 1

// The stable store's keys, as raft writes them.
var (
	keyCurrentTerm  = []byte("CurrentTerm")
	keyLastVoteTerm = []byte("LastVoteTerm")
)

// hasState reports whether raft has ever run here as part of a cluster. What
// BootstrapCluster leaves when it is killed between its two writes (term 1, no
// entry, no vote) is none: no follower ever stops at term 1, because the first
// election is for term 2.
func (n *Node) hasState() (bool, error) {
	has, err := raft.HasExistingState(n.store, n.store, n.snaps)
	if err != nil || !has {
		return has, wrapIf(err, "look for raft state in "+n.config.Dir)
	}
	half, err := n.halfBootstrapped()
	return !half, wrapIf(err, "look for raft state in "+n.config.Dir)
}

func (n *Node) halfBootstrapped() (bool, error) {
	last, err := n.store.LastIndex()
	if err != nil || last > 0 {
		return false, err
	}
	snaps, err := n.snaps.List()
	if err != nil || len(snaps) > 0 {
		return false, err
	}
	term, err := stableUint64(n.store, keyCurrentTerm)
	if err != nil || term != 1 {
		return false, err
	}
	vote, err := stableUint64(n.store, keyLastVoteTerm)
	return vote == 0, err
}

// stableUint64 returns 0 for a key that was never set. The store says so only
// in words, the same that raft itself compares.
func stableUint64(s raft.StableStore, key []byte) (uint64, error) {
	v, err := s.GetUint64(key)
	if err != nil && err.Error() == "not found" {
		return 0, nil
	}
	return v, err
}

func wrapIf(err error, what string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// form takes a node without raft state into a cluster and then starts raft. It
// returns when raft runs, or with ctx.
//
// Only the lowest ID of the join list makes a cluster, and only once every
// other node on it has answered directly that it has no state and the same
// list. So a list makes at most one cluster, and a node whose directory was
// wiped makes none, whatever its flags say.
func (n *Node) form(ctx context.Context) {
	lowest := true
	for _, p := range n.config.Join {
		lowest = lowest && n.config.NodeID <= p.ID
	}
	for try := 0; ctx.Err() == nil; try++ {
		ready := false
		switch {
		case lowest:
			ready = n.tryBootstrap(ctx)
		case n.identity.Self().ClusterID != "":
			ready = true // taken in; the leader will send the log
		default:
			n.survey(ctx)
		}
		if ready {
			if err := n.start(); err != nil && !errors.Is(err, ErrClosed) {
				n.logger.Error("raft did not start", "err", err)
				n.setDetail(err.Error())
			}
			return
		}
		pause := formFast
		if try >= formFastTries {
			pause = formSlow
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-n.life.adopted:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// setDetail says what a forming node waits for; each new sentence is logged
// once.
func (n *Node) setDetail(detail string) {
	n.life.mu.Lock()
	changed := n.life.detail != detail
	n.life.detail = detail
	n.life.mu.Unlock()
	if changed && detail != "" {
		n.logger.Warn("no cluster yet", "why", detail)
	}
}

// survey asks every other node on the list what it is. It returns their
// incarnations when all are as this node is: without state, with the same
// list.
func (n *Node) survey(ctx context.Context) (incarnations map[string]string, ok bool) {
	self := n.identity.Self()
	incarnations = map[string]string{self.NodeID: self.Incarnation}
	replies, errs := n.askAll(ctx, func(Peer) question { return question{Op: askState} })
	var waiting, belongs, differ []string
	for _, p := range sortedPeers(n.config.Join) {
		got, answered := replies[p.ID]
		switch {
		case p.ID == n.config.NodeID:
		case !answered && errors.Is(errs[p.ID], mux.ErrUnauthorized):
			waiting = append(waiting, p.ID+" (it has another RCD_CLUSTER_KEY)")
		case !answered:
			waiting = append(waiting, p.ID)
			n.logger.Debug("no answer", "peer", p.ID, "err", errs[p.ID])
		case got.HasState:
			belongs = append(belongs, fmt.Sprintf("%s already belongs to cluster %s", p.ID, got.ClusterID))
		case !slices.Equal(got.List, sortedPeers(n.config.Join)):
			differ = append(differ, fmt.Sprintf("%s has %q, this node has %q", p.ID, listText(got.List), listText(sortedPeers(n.config.Join))))
		default:
			incarnations[p.ID] = got.Incarnation
		}
	}
	switch {
	case ctx.Err() != nil:
		return nil, false
	case len(belongs) > 0:
		n.setDetail(strings.Join(belongs, ", ") + ", and this data directory is new: remove " + n.config.NodeID +
			" from that cluster and let it rejoin as a new node (a new ID), or restore its directory")
		return nil, false
	case len(differ) > 0:
		n.setDetail("the join lists differ: " + strings.Join(differ, "; "))
		return nil, false
	case len(waiting) > 0:
		n.setDetail("waiting for " + strings.Join(waiting, ", "))
		return nil, false
	}
	n.setDetail("waiting for " + sortedPeers(n.config.Join)[0].ID + " to form the cluster")
	return incarnations, true
}

// askAll asks every other node on the list at once.
func (n *Node) askAll(ctx context.Context, q func(Peer) question) (map[string]reply, map[string]error) {
	var wait sync.WaitGroup
	var mu sync.Mutex
	replies, errs := map[string]reply{}, map[string]error{}
	for _, p := range n.config.Join {
		if p.ID == n.config.NodeID {
			continue
		}
		wait.Add(1)
		go func() {
			defer wait.Done()
			addr, err := n.addressOf(p.ID)
			var got reply
			if err == nil {
				got, err = n.asker.ask(ctx, p.ID, addr, q(p))
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs[p.ID] = err
			} else {
				replies[p.ID] = got
			}
		}()
	}
	wait.Wait()
	return replies, errs
}

// tryBootstrap makes the cluster if every other node agrees. A crash at any
// point leaves nodes without state, which a later try takes in again.
func (n *Node) tryBootstrap(ctx context.Context) bool {
	self := n.identity.Self()
	members := map[string]string{self.NodeID: self.Incarnation}
	servers := []raft.Server{{Suffrage: raft.Voter, ID: raft.ServerID(self.NodeID), Address: raft.ServerAddress(n.deps.Streams.Channel(mux.Probe).Addr().String())}}
	clusterID := self.ClusterID
	if clusterID == "" {
		clusterID = ident.New()
	}
	if len(n.config.Join) > 0 {
		var ok bool
		if members, ok = n.survey(ctx); !ok {
			return false
		}
		servers = nil
		list := sortedPeers(n.config.Join)
		for _, p := range list {
			servers = append(servers, raft.Server{Suffrage: raft.Voter, ID: raft.ServerID(p.ID), Address: raft.ServerAddress(p.Addr)})
		}
		_, errs := n.askAll(ctx, func(Peer) question {
			return question{Op: askAdopt, List: list, ClusterID: clusterID, Generation: firstGeneration, Members: members}
		})
		for id, err := range errs {
			n.setDetail(fmt.Sprintf("%s did not join: %v", id, err))
			return false
		}
	}
	if err := n.bootstrap(clusterID, members, servers); err != nil {
		n.setDetail(err.Error())
		return false
	}
	n.logger.Info("formed a cluster", "cluster", clusterID, "voters", len(servers))
	return true
}

func (n *Node) bootstrap(clusterID string, members map[string]string, servers []raft.Server) error {
	if err := n.identity.join(clusterID, firstGeneration, members); err != nil {
		return err
	}
	half, err := n.halfBootstrapped()
	if err == nil && half {
		err = n.store.SetUint64(keyCurrentTerm, 0)
	}
	if err != nil {
		return fmt.Errorf("finish an interrupted bootstrap: %w", err)
	}
	// Under protocol 3 the transport is not used here.
	err = raft.BootstrapCluster(n.config.raftConfig(nil, n.logger), n.store, n.store, n.snaps, nil, raft.Configuration{Servers: servers})
	return wrapIf(err, "bootstrap raft in "+n.config.Dir)
}

// describe answers askState.
func (n *Node) describe() reply {
	has, err := n.hasState()
	if err != nil {
		return reply{Refusal: err.Error()}
	}
	self := n.identity.Self()
	return reply{List: sortedPeers(n.config.Join), HasState: has, ClusterID: self.ClusterID, Incarnation: self.Incarnation}
}

// adopt answers askAdopt: the lowest node of the same list takes this one into
// a cluster. A node that has been taken in but has no state yet may be taken
// in again: then the first try never got to its end.
func (n *Node) adopt(from mux.Identity, q question) error {
	self := n.identity.Self()
	list := sortedPeers(n.config.Join)
	switch {
	case len(list) == 0 || !slices.Equal(q.List, list):
		return fmt.Errorf("%s has another join list (%s)", self.NodeID, listText(list))
	case from.NodeID != list[0].ID:
		return fmt.Errorf("%s is not the first of the join list", from.NodeID)
	case q.ClusterID == "" || q.Generation == 0 || len(q.Members) != len(list):
		return errors.New("incomplete adoption")
	case q.Members[self.NodeID] != self.Incarnation:
		return fmt.Errorf("%s has been started on another data directory since it was asked", self.NodeID)
	case q.Members[from.NodeID] != from.Incarnation:
		return fmt.Errorf("%s does not name itself", from.NodeID)
	}
	n.life.mu.Lock()
	defer n.life.mu.Unlock()
	has, err := n.hasState()
	if err != nil {
		return err
	}
	if has {
		return fmt.Errorf("%s already belongs to cluster %s", self.NodeID, self.ClusterID)
	}
	if err := n.identity.join(q.ClusterID, q.Generation, q.Members); err != nil {
		return err
	}
	select {
	case n.life.adopted <- struct{}{}:
	default:
	}
	return nil
}
