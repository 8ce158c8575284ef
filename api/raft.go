package api

import (
	"context"
	"math"
	"net/http"
	"time"

	"rcd/wire"
)

// How many entries of the log are shown.
const (
	defaultEntries = 20
	maxEntries     = 1000

	// peersWithin bounds asking all peers: one that is frozen must not keep
	// the others from being seen.
	peersWithin = 2 * time.Second
)

// The raft routes show this node as it is, also with no leader. They never
// forward.

func (s *server) raftStatus(w http.ResponseWriter, r *http.Request, _ Identity) error {
	ctx, cancel := context.WithTimeout(r.Context(), requestDeadline)
	defer cancel()
	status := s.backend.RaftStatus(ctx)
	return s.send(w, reply{status: http.StatusOK, body: status, index: status.FSMIndex, leader: status.Leader})
}

func (s *server) raftPeers(w http.ResponseWriter, r *http.Request, _ Identity) error {
	ctx, cancel := context.WithTimeout(r.Context(), peersWithin)
	defer cancel()
	peers := s.backend.RaftPeers(ctx)
	if len(peers) == 0 {
		return s.notInCluster(ctx, "no members to list")
	}
	return s.send(w, reply{status: http.StatusOK, body: wire.RaftPeers{Peers: peers}, leader: s.backend.Leader().ID})
}

func (s *server) raftLog(w http.ResponseWriter, r *http.Request, _ Identity) error {
	since, err := intParam(r, "since", 0, math.MaxInt64, 0)
	if err != nil {
		return err
	}
	n, err := intParam(r, "n", 1, maxEntries, defaultEntries)
	if err != nil {
		return err
	}
	page, err := s.backend.RaftLog(uint64(since), int(n))
	if err != nil {
		return err
	}
	if page.Last == 0 {
		return s.notInCluster(r.Context(), "no log to show")
	}
	out := wire.RaftLog{Node: s.NodeID, Commit: page.Commit, First: page.First, Last: page.Last, Entries: []wire.RaftEntry{}}
	for _, entry := range page.Entries {
		out.Entries = append(out.Entries, entryLines(entry, entry.Index <= page.Commit)...)
	}
	return s.send(w, reply{status: http.StatusOK, body: out, leader: s.backend.Leader().ID})
}

// notInCluster refuses with what this node waits for.
func (s *server) notInCluster(ctx context.Context, lacks string) error {
	why := ""
	if status := s.backend.RaftStatus(ctx); status.Waiting != "" {
		why = ": " + status.Waiting
	} else if status.Halted != "" {
		why = ": " + status.Halted
	}
	return refuse(http.StatusServiceUnavailable, wire.CodeNotInCluster,
		"%s is in no cluster and has %s%s; ask another controller, or start what is missing", s.NodeID, lacks, why)
}
