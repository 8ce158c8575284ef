package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"rcd/wire"
)

type raftCmd struct {
	Status raftStatusCmd `cmd:"" help:"Show one controller's own view of the cluster."`
	Peers  raftPeersCmd  `cmd:"" help:"List the controllers."`
	Log    raftLogCmd    `cmd:"" help:"Show the end of the replicated log."`
}

// Help is shown by rc raft --help.
func (raftCmd) Help() string {
	return `All of it works without a leader.

Examples:

    rc raft peers
    rc raft status --node c2
    rc raft log -n 20`
}

// nodeFlag chooses whom to ask.
type nodeFlag struct {
	Node string `placeholder:"ID|URL" help:"Controller to ask; any by default."`
}

type raftStatusCmd struct {
	nodeFlag
	format
}

// Help is shown by rc raft status --help.
func (raftStatusCmd) Help() string {
	return `Works without a leader.

Examples:

    rc raft status
    rc raft status --node c2 -o json`
}

func (v *raftStatusCmd) Run(a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := c.RaftStatus(a.ctx, v.Node)
	if err != nil {
		return err
	}
	return v.show(a.stdout, s, s.Node, func() error { return printStatus(a.stdout, s) })
}

func printStatus(w io.Writer, s *wire.RaftStatus) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(t, "%s\t%s\n", name, clean(value))
		}
	}
	number := func(n uint64) string { return strconv.FormatUint(n, 10) }
	line("node", s.Node)
	line("state", s.State)
	line("why", s.Waiting)
	line("halted", s.Halted)
	line("leader", withNote(firstOf(s.Leader, "none"), s.LeaderAddr))
	line("term", number(s.Term))
	line("epoch", number(s.Epoch))
	line("cluster", fmt.Sprintf("%s, generation %d", firstOf(s.ClusterID, "none yet"), s.Generation))
	line("log", fmt.Sprintf("last %d, committed %d, applied %d, snapshot at %d", s.LastLog, s.Commit, s.Applied, s.LastSnapshot))
	line("table", fmt.Sprintf("at %d, digest %s", s.FSMIndex, s.Digest))
	if s.HoldoffMS > 0 {
		line("holdoff", duration(time.Duration(s.HoldoffMS)*time.Millisecond)+" left")
	}
	line("now", s.Now.UTC().Format(time.RFC3339))
	line("uptime", duration(time.Duration(s.UptimeMS)*time.Millisecond))
	line("agents", fmt.Sprintf("%d, %d attached here", s.Agents, s.Attached))
	line("rows", counts(s.Counts))
	if o := s.OutputCopies; o != nil {
		line("copies", fmt.Sprintf("output of %d jobs, %d of them complete, %d of %d MB", o.Jobs, o.Complete, o.Bytes>>20, o.Limit>>20))
	}
	for _, alarm := range s.Alarms {
		line("ALARM", fmt.Sprintf("%s since %s: %s", alarm.Code, alarm.Since.UTC().Format(time.RFC3339), alarm.Message))
	}
	return t.Flush()
}

func counts(rows map[string]int) string {
	var parts []string
	for name, n := range rows {
		parts = append(parts, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

type raftPeersCmd struct {
	nodeFlag
	format
}

// Help is shown by rc raft peers --help.
func (raftPeersCmd) Help() string {
	return `LAST is the last index in the log, APPLIED the last one applied, as each controller says itself. A halted one takes no part any more; rc raft status --node ID says why. Works without a leader. With -o json an array is printed.

Examples:

    rc raft peers
    rc raft peers -o json`
}

func (v *raftPeersCmd) Run(a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	peers, err := c.RaftPeers(a.ctx, v.Node)
	if err != nil {
		return err
	}
	return peerListing.print(a.stdout, v.Output, peers, nil)
}

var peerListing = listing[wire.RaftPeer]{
	name: func(p wire.RaftPeer) string { return p.ID },
	columns: []column[wire.RaftPeer]{
		{"ID", allTables, func(p wire.RaftPeer) string { return p.ID }},
		{"LEADER", allTables, func(p wire.RaftPeer) string { return yesNo(p.Leader) }},
		{"VOTER", allTables, func(p wire.RaftPeer) string { return yesNo(p.Voter) }},
		{"ADDRESS", allTables, func(p wire.RaftPeer) string { return p.Address }},
		{"HTTP", allTables, func(p wire.RaftPeer) string { return p.HTTP }},
		{"LAST", allTables, func(p wire.RaftPeer) string { return ifHeard(p, p.LastLog) }},
		{"APPLIED", allTables, func(p wire.RaftPeer) string { return ifHeard(p, p.Applied) }},
		{"TERM", wideOnly, func(p wire.RaftPeer) string { return ifHeard(p, p.Term) }},
		{"STATE", narrowOnly, peerState},
		{"STATE", wideOnly, func(p wire.RaftPeer) string { return withNote(peerState(p), p.Halted) }},
	},
}

func ifHeard(p wire.RaftPeer, n uint64) string {
	if p.Reachable || p.Self {
		return strconv.FormatUint(n, 10)
	}
	return ""
}

func peerState(p wire.RaftPeer) string {
	switch {
	case p.Halted != "":
		return "halted"
	case p.Self:
		return "answering"
	case p.Reachable:
		return "up"
	}
	return "unreachable"
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

type raftLogCmd struct {
	Since uint64 `placeholder:"INDEX" help:"Begin at this index; by default the newest entries are shown."`
	N     int    `name:"limit" short:"n" default:"50" help:"How many entries."`
	nodeFlag
	format
}

// Help is shown by rc raft log --help.
func (raftLogCmd) Help() string {
	return `One line for each command, oldest first; commands that went into one entry share its index. An entry past the commit index is marked "uncommitted": it may still be replaced. Environments and secrets are not shown. Works without a leader. With -o json an array is printed.

Examples:

    rc raft log -n 20
    rc raft log --since 4000 --node c3 -o json`
}

func (v *raftLogCmd) Run(a *app) error {
	if v.N < 1 {
		return &usageError{text: "-n must be at least 1", verb: "raft log"}
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	log, err := c.RaftLog(a.ctx, v.Node, v.Since, v.N)
	if err != nil {
		return err
	}
	return entryListing.print(a.stdout, v.Output, log.Entries, nil)
}

// entryListing prints times in full: they are laid beside those of the
// controllers' logs.
var entryListing = listing[wire.RaftEntry]{
	name: func(e wire.RaftEntry) string { return strconv.FormatUint(e.Index, 10) },
	columns: []column[wire.RaftEntry]{
		{"INDEX", allTables, func(e wire.RaftEntry) string { return strconv.FormatUint(e.Index, 10) }},
		{"POSITION", wideOnly, func(e wire.RaftEntry) string { return strconv.Itoa(e.Position) }},
		{"TERM", allTables, func(e wire.RaftEntry) string { return strconv.FormatUint(e.Term, 10) }},
		{"TIME", allTables, func(e wire.RaftEntry) string { return e.Time }},
		{"KIND", allTables, func(e wire.RaftEntry) string { return e.Kind }},
		{"SUMMARY", allTables, func(e wire.RaftEntry) string {
			if !e.Committed {
				return strings.TrimSpace("uncommitted " + e.Summary)
			}
			return e.Summary
		}},
	},
}
