package wire

import "time"

// RaftStatus is the answer to GET /v1/raft/status: one node's own view.
type RaftStatus struct {
	Node         string    `json:"node"`
	ClusterID    string    `json:"cluster_id"`
	Generation   uint64    `json:"generation"`
	State        string    `json:"state"` // forming | follower | candidate | leader | shutdown | halted
	Term         uint64    `json:"term"`
	Leader       string    `json:"leader"` // "" when none is known
	LeaderAddr   string    `json:"leader_address"`
	LastLog      uint64    `json:"last_log_index"`
	Commit       uint64    `json:"commit_index"`
	Applied      uint64    `json:"applied_index"`
	FSMIndex     uint64    `json:"fsm_index"`
	Epoch        uint64    `json:"epoch"` // last epoch begun
	LastSnapshot uint64    `json:"last_snapshot_index"`
	Digest       string    `json:"digest"` // of the lease table at FSMIndex
	Now          time.Time `json:"now"`
	UptimeMS     int64     `json:"uptime_ms"`
	// HoldoffMS is what is left of the holdoff; 0 on followers.
	HoldoffMS int64          `json:"holdoff_ms"`
	Waiting   string         `json:"waiting,omitempty"` // what a forming node waits for
	Halted    string         `json:"halted,omitempty"`
	Agents    int            `json:"agents"`
	Attached  int            `json:"agents_attached"`  // to this node
	Counts    map[string]int `json:"counts"`           // rows: jobs by state, devices by state, leases
	Alarms    []Alarm        `json:"alarms,omitempty"` // what waits for an operator
	// OutputCopies is how this node's copies of output stand; none while it keeps
	// none.
	OutputCopies *OutputCopies `json:"output_copies,omitempty"`
}

// OutputCopies is how one controller's copies of jobs' output stand.
type OutputCopies struct {
	Bytes    int64  `json:"bytes"`             // that they take
	Limit    int64  `json:"limit_bytes"`       // that they may take
	Jobs     int    `json:"jobs"`              // with a copy
	Complete int    `json:"jobs_complete"`     // of these, with all there is
	Stopped  string `json:"stopped,omitempty"` // why nothing is copied now
}

// Alarm is something that only an operator can mend or decide.
type Alarm struct {
	Code    string    `json:"code"`
	Since   time.Time `json:"since"`
	Message string    `json:"message"` // what it is and what to do
}

// The codes of alarms.
const (
	AlarmWriteOffWithheld = "write_off_withheld" // too many hosts are silent at once
	AlarmNoMajority       = "no_digest_majority" // the controllers' lease tables differ and no majority holds one
	AlarmMemberBehind     = "member_behind"      // a controller does not know the cluster's feature level
	AlarmWebhooks         = "webhooks_waiting"   // the webhook URL takes nothing
	AlarmOutputCopies     = "output_not_copied"  // a controller has no room for copies of output
)

// RaftPeer is one member as the answering node sees it.
type RaftPeer struct {
	ID        string `json:"id"`
	Leader    bool   `json:"leader"`
	Voter     bool   `json:"voter"`
	Address   string `json:"address"` // --listen
	HTTP      string `json:"http"`    // "" when not known
	Self      bool   `json:"self"`
	Reachable bool   `json:"reachable"`
	LastLog   uint64 `json:"last_log_index"` // of the peer, as it says itself; 0 unreachable
	Applied   uint64 `json:"applied_index"`
	Term      uint64 `json:"term"`
	Halted    string `json:"halted,omitempty"` // why it takes no part any more
}

// RaftPeers is the answer to GET /v1/raft/peers.
type RaftPeers struct {
	Peers []RaftPeer `json:"peers"`
}

// RaftEntry is one entry of the log, secrets redacted.
type RaftEntry struct {
	Index     uint64 `json:"index"`
	Term      uint64 `json:"term"`
	Time      string `json:"time"`     // RFC 3339 with milliseconds, UTC; "" when not recorded
	Kind      string `json:"kind"`     // "job.enqueue", "noop", "configuration", …
	Summary   string `json:"summary"`  // one line
	Position  int    `json:"position"` // of the command inside its entry, from 0
	Committed bool   `json:"committed"`
}

// RaftLog is the answer to GET /v1/raft/log, oldest first.
type RaftLog struct {
	Node    string      `json:"node"`
	Commit  uint64      `json:"commit_index"`
	First   uint64      `json:"first_index"` // oldest that this node still has
	Last    uint64      `json:"last_index"`
	Entries []RaftEntry `json:"entries"`
}
