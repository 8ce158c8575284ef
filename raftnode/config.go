package raftnode

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// ErrConfig is wrapped by every refusal of a configuration.
var ErrConfig = errors.New("configuration refused")

// The timing at multiplier 1, and the floor under which a busy host loses its
// leader to scheduling delays alone.
const (
	baseHeartbeat = 500 * time.Millisecond
	baseElection  = 500 * time.Millisecond
	baseLease     = 250 * time.Millisecond
	minHeartbeat  = 200 * time.Millisecond
)

const (
	commitTimeout    = 10 * time.Millisecond // followers learn of a commit on an idle log within twice this
	maxAppendEntries = 32                    // entries in one AppendEntries; with 128 KiB each 4 MiB
	maxRPCsInFlight  = 2                     // more makes commits slower (hashicorp/raft#541)
	maxPool          = 3                     // pooled connections to a peer
	retainSnapshots  = 2                     // the one before last, if the last cannot be read

	// transportTimeouts is how many heartbeat timeouts one RPC may stand still.
	transportTimeouts = 10
	// timeoutScale is the bytes of a snapshot for which the timeout is granted
	// once more.
	timeoutScale = 256 << 10
)

// Defaults of what a Config leaves zero.
const (
	defaultSnapshotInterval  = 2 * time.Minute
	defaultSnapshotThreshold = 8192     // entries
	defaultSnapshotLogBytes  = 32 << 20 // half of the trailing log
	defaultSnapshotAge       = time.Hour
	defaultTrailingBytes     = 64 << 20
	minTrailingLogs          = 64      // a follower a breath behind never needs a snapshot
	maxTrailingLogs          = 1 << 20 // of tiny entries, so that the byte count itself stays small
)

// Peer is a controller as the join list names it. The name in Addr is resolved
// at each dial.
type Peer struct {
	ID   string `json:"id"`
	Addr string `json:"addr"` // host:port
}

// Config says which node this is. Zero fields mean the defaults above.
type Config struct {
	NodeID string
	Dir    string // the node's own; made when missing
	// BootstrapExpect is how many controllers the first cluster has: the
	// length of Join, or 1 with an empty Join.
	BootstrapExpect int
	Join            []Peer // every controller of the first cluster, this one included
	// Multiplier stretches heartbeat, election and lease timeouts; at least 0.4.
	Multiplier float64
	Snapshots  SnapshotPolicy
}

// SnapshotPolicy says when the log is compacted and how much of it stays.
type SnapshotPolicy struct {
	Interval      time.Duration // how often raft itself looks (to twice this)
	Threshold     uint64        // entries since the last snapshot
	LogBytes      int64         // bytes of log since the last snapshot
	Age           time.Duration // of the last snapshot, when anything came after it
	TrailingBytes int64         // log kept behind a snapshot
}

func (p SnapshotPolicy) orDefaults() SnapshotPolicy {
	p.Interval = cmp.Or(p.Interval, defaultSnapshotInterval)
	p.Threshold = cmp.Or(p.Threshold, defaultSnapshotThreshold)
	p.LogBytes = cmp.Or(p.LogBytes, defaultSnapshotLogBytes)
	p.Age = cmp.Or(p.Age, defaultSnapshotAge)
	p.TrailingBytes = cmp.Or(p.TrailingBytes, defaultTrailingBytes)
	return p
}

// Check returns why the configuration cannot be used, wrapped in ErrConfig, in
// words for the operator. It returns nil for a usable one.
func (c Config) Check() error {
	refuse := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s", ErrConfig, fmt.Sprintf(format, args...))
	}
	if c.NodeID == "" || strings.ContainsAny(c.NodeID, "=, \t\n") {
		return refuse("node ID %q: give a name without spaces, commas and =", c.NodeID)
	}
	if c.Dir == "" {
		return refuse("no data directory")
	}
	if c.Multiplier != 0 {
		if heartbeat := c.scaled(baseHeartbeat); heartbeat < minHeartbeat {
			return refuse("raft multiplier %v gives a heartbeat of %v: it must be at least %v (multiplier %v)",
				c.Multiplier, heartbeat, minHeartbeat, float64(minHeartbeat)/float64(baseHeartbeat))
		}
	}
	if len(c.Join) == 0 {
		if c.BootstrapExpect != 1 {
			return refuse("bootstrap-expect %d needs a join list of as many controllers", c.BootstrapExpect)
		}
		return nil
	}
	if c.BootstrapExpect != len(c.Join) {
		return refuse("bootstrap-expect is %d, the join list has %d controllers: they must be equal", c.BootstrapExpect, len(c.Join))
	}
	ids, addrs := map[string]bool{}, map[string]string{}
	for _, p := range c.Join {
		if p.ID == "" || p.Addr == "" {
			return refuse("join list entry %q=%q: give ID=HOST:PORT", p.ID, p.Addr)
		}
		if ids[p.ID] {
			return refuse("the join list names %s twice", p.ID)
		}
		if other, taken := addrs[p.Addr]; taken {
			return refuse("the join list gives %s to both %s and %s", p.Addr, other, p.ID)
		}
		ids[p.ID], addrs[p.Addr] = true, p.ID
	}
	if !ids[c.NodeID] {
		return refuse("the join list (%s) does not contain this node, %s", listText(sortedPeers(c.Join)), c.NodeID)
	}
	return nil
}

func (c Config) scaled(d time.Duration) time.Duration {
	if c.Multiplier == 0 {
		return d
	}
	return time.Duration(float64(d) * c.Multiplier)
}

func (c Config) heartbeat() time.Duration        { return c.scaled(baseHeartbeat) }
func (c Config) lease() time.Duration            { return c.scaled(baseLease) }
func (c Config) transportTimeout() time.Duration { return transportTimeouts * c.heartbeat() }

// raftConfig names every option, so that no default of another version ever
// decides.
func (c Config) raftConfig(notify chan<- bool, logger *slog.Logger) *raft.Config {
	return &raft.Config{
		ProtocolVersion:          raft.ProtocolVersionMax,
		HeartbeatTimeout:         c.heartbeat(),
		ElectionTimeout:          c.scaled(baseElection),
		CommitTimeout:            commitTimeout,
		MaxAppendEntries:         maxAppendEntries,
		BatchApplyCh:             false, // a proposal that timed out at the door must not be in a buffer
		ShutdownOnRemove:         false, // ending is the node's business, and waits for what is in flight
		TrailingLogs:             minTrailingLogs,
		SnapshotInterval:         c.Snapshots.Interval,
		SnapshotThreshold:        c.Snapshots.Threshold,
		LeaderLeaseTimeout:       c.lease(),
		LocalID:                  raft.ServerID(c.NodeID),
		NotifyCh:                 notify,
		LogOutput:                nil,
		LogLevel:                 "",
		Logger:                   raftLogger(logger),
		NoSnapshotRestoreOnStart: false,
		PreVoteDisabled:          false,
		NoLegacyTelemetry:        true,
	}
}

// sortedPeers returns a copy in the order of IDs.
func sortedPeers(peers []Peer) []Peer {
	out := slices.Clone(peers)
	slices.SortFunc(out, func(a, b Peer) int { return strings.Compare(a.ID, b.ID) })
	return out
}

func listText(peers []Peer) string {
	var parts []string
	for _, p := range peers {
		parts = append(parts, p.ID+"="+p.Addr)
	}
	return strings.Join(parts, ",")
}
