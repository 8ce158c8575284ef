package api

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/relay"
	"rcd/wire"
)

// ErrNotSent means that a request to another controller was not sent: no byte
// of it left this node, so nothing can have happened there. PeerClient's round
// trippers wrap it; any other error of theirs leaves the outcome unknown.
var ErrNotSent = errors.New("request not sent")

// ErrHostAway means that the host of a job has no session with the leader at
// present.
var ErrHostAway = errors.New("host not connected to the leader")

// Backend is what the edge needs of its node. Every method may be called
// concurrently and returns soon after its context ends.
type Backend interface {
	// Leader returns who leads as far as this node knows. It never blocks.
	Leader() Leader

	// Halted returns why this node takes no part in the cluster any more, a
	// sentence for an operator; "" while it does. It never blocks.
	Halted() string

	// Propose puts one command (command.Encode) into the log through the
	// combiner and returns its answer and the index of its entry; leader only.
	//
	// Errors wrap raftnode.ErrNotLeader or raftnode.ErrOverloaded (nothing was
	// logged) or raftnode.ErrOutcomeUnknown (it may have happened); so may any
	// other error, a context's included. A result with code stale_epoch
	// changed nothing; the edge asks again.
	Propose(ctx context.Context, cmd []byte) (command.Result, uint64, error)

	// Read returns a view of the lease table on this node: at or above every
	// write acknowledged before the call (a follower asks the leader for its
	// index and waits for its own state), or with Stale as the node has it
	// now, without asking anybody. An error means that no such view can be had
	// yet; the edge asks again until the request's deadline.
	Read(ctx context.Context, o ReadOptions) (*fsm.View, ReadInfo, error)

	// Events returns the events that this node keeps, always the same log. The
	// log never runs ahead of Read: who learns of an event there and reads
	// finds it in the state.
	Events() *EventLog

	// Attached reports whether a host has a control session with this node.
	Attached(host string) bool

	// AgentProtocol returns the protocol that the agent of a host speaks, 0
	// while it has no control session with this node.
	AgentProtocol(host string) int

	// HearSession takes that the client of a hold with a session has been heard
	// just now; leader only. It never blocks, and nothing of it is logged.
	HearSession(hold uint64)

	// Output returns the bytes of a job from offset on; on the leader, and on
	// any other node for an output that it has a whole copy of, else
	// raftnode.ErrNotLeader. The row is the caller's; what becomes of the job later is the backend's to
	// follow, and so is joining the host's spool again when a link is lost.
	//
	// With follow the source ends (relay.End) at the length that job.finish
	// stated, or by an explicit gap to it, however long that takes; a job that
	// has not started yet is waited for. Without, it ends at what the host has
	// at the time of the call, and at the stated length if the job has ended.
	// While the host is out of reach Next blocks; the edge's context bounds
	// that, unless a controller has a copy. Bytes that are gone are a relay.Gap wherever the stated length says
	// how many they are; an End that is not Complete says the rest. The
	// context covers the life of the source: ending it frees everything. The
	// edge ends it when the node stops leading.
	Output(ctx context.Context, job *model.Job, offset int64, follow bool) (relay.Source, error)

	// Attach opens a stream from the agent that has the job, and has written the
	// opening frame; leader only. What the agent sends from then on, and takes,
	// are the frames of a stream that is attached. The caller closes it, which
	// ends every call on it. ctx bounds the opening only.
	//
	// Errors wrap raftnode.ErrNotLeader or ErrHostAway, after which another try
	// may succeed, or are a *wire.StreamError.
	Attach(ctx context.Context, job *model.Job, offset int64, open wire.StreamOpen) (net.Conn, error)

	// Forward returns the way to a controller's internal handler, usually
	// PeerClient.To. It never blocks and never returns nil; a peer that is not
	// known fails with ErrNotSent.
	Forward(nodeID string) http.RoundTripper

	// RaftStatus is this node's own view, also with no leader. Node and Now
	// are filled in.
	RaftStatus(ctx context.Context) wire.RaftStatus

	// RaftPeers lists the members by ID, each asked directly (PeerClient.Peer)
	// inside the context; one that does not answer is not Reachable.
	RaftPeers(ctx context.Context) []wire.RaftPeer

	// RaftLog returns up to n entries of this node's own log with index at or
	// above since, oldest first; since 0 means the last n.
	RaftLog(since uint64, n int) (LogPage, error)
}

// Leader says who leads. The zero ID means that nobody is known to.
type Leader struct {
	ID   string
	Term uint64
	// Self: this node leads and has begun its epoch.
	Self bool
	// Changed is closed as soon as any of the above is no longer true, a
	// leadership lost and regained included. It is never nil.
	Changed <-chan struct{}
}

// ReadOptions say what a read must give.
type ReadOptions struct {
	Stale bool
	// Heard asks for ReadInfo.Heard as well.
	Heard bool
}

// ReadInfo says what a view reflects.
type ReadInfo struct {
	Leader string // ID of the leader the view was confirmed by, "" when stale and none is known
	// Now is the cluster's now at the time of the read: the view's, run on by
	// the leader's monotonic clock, because on an idle log the view's stands
	// still. The zero time makes the edge use the view's.
	Now time.Time
	// Age is how old the view may be: time since this node last heard a
	// leader, or if it has not since it was started, since the last entry. 0
	// unless Stale.
	Age time.Duration
	// Heard is, for each host that some controller has heard, how long ago that
	// was. Durations, not times: the clocks of two controllers need not agree.
	// nil unless asked for. What the row of a host says may be later, and is
	// all there is for one that is not in it.
	Heard map[string]time.Duration
	// HeardAge is how old the leader's word in Heard is: 0 unless Stale,
	// negative when no leader has given this process its word.
	HeardAge time.Duration
}

// LogPage is a piece of one node's Raft log.
type LogPage struct {
	First, Last uint64 // what the node has
	Commit      uint64
	Entries     []LogEntry // ascending by index
}

// LogEntry is one entry as Raft keeps it.
type LogEntry struct {
	Index, Term uint64
	At          time.Time // when it was appended; zero when not recorded
	// Kind is "command" for an entry of the lease table (Data is then what
	// command.EncodeEntry made), else Raft's own word: "noop", "barrier",
	// "configuration".
	Kind    string
	Summary string // of an entry that is no command
	Data    []byte
}

// Internal is what the calls between controllers need of a node beyond
// Backend; see NewInternal.
type Internal interface {
	// ReadIndex returns the leader's FSM index, taken before its leadership
	// was verified and after its epoch began. Errors wrap
	// raftnode.ErrNotLeader.
	ReadIndex(ctx context.Context, heard bool) (ReadIndex, error)

	// Contacts takes a follower's report of the agents it hears. Errors wrap
	// raftnode.ErrNotLeader.
	Contacts(ctx context.Context, report ContactReport) (ContactAnswer, error)

	// Peer describes this node as /v1/raft/peers shows it.
	Peer() wire.RaftPeer

	// DigestAt returns the digest that this node's lease table had at a
	// checkpoint's index.
	DigestAt(index uint64) DigestAt

	// Webhooks returns what this node knows of webhooks.
	Webhooks() WebhookLedger

	// Copy opens this node's own copy of an output, whatever else there is of
	// it elsewhere. An error means that there is none.
	Copy(ctx context.Context, r CopyRequest) (CopySource, error)
}

// DigestAt answers GET /internal/digest.
type DigestAt struct {
	// Digest has 32 hexadecimal digits; "" when this node has none for the
	// index.
	Digest string `json:"digest,omitempty"`
	// Applied is the last index applied there: at or above the one asked for
	// there will never be a digest for it any more.
	Applied uint64 `json:"applied"`
}

// ReadIndex answers POST /internal/read-index.
type ReadIndex struct {
	Index uint64 `json:"index"`
	Term  uint64 `json:"term"`
	NowMS int64  `json:"now_ms"` // the cluster's now, Unix milliseconds
	// HeardMS is how long ago each host was heard; nil unless asked for.
	HeardMS map[string]int64 `json:"heard_ms,omitempty"`
}

// ContactReport is what a follower tells the leader, about once a second.
type ContactReport struct {
	Node   string    `json:"node"`
	WallMS int64     `json:"wall_ms"` // the follower's wall clock, Unix milliseconds
	Agents []Contact `json:"agents"`  // with a session there, or heard since the last report
	// What the follower is: the incarnation of its data directory, the highest
	// feature level that its build knows (0 from a build that does not say) and
	// the build's version.
	Incarnation string `json:"incarnation,omitempty"`
	Supports    uint32 `json:"supports,omitempty"`
	Build       string `json:"build,omitempty"`
	// AskHeard asks for ContactAnswer.HeardMS.
	AskHeard bool `json:"ask_heard,omitempty"`
}

// Contact is one agent that a follower hears.
type Contact struct {
	Host     string `json:"host"`
	Instance string `json:"instance"`
	AgoMS    int64  `json:"ago_ms"` // since it was last heard
}

// ContactAnswer is what the leader tells back: the clocks it knows, so that
// whoever leads next knows a majority's without asking, and what a follower's
// stale reads need.
type ContactAnswer struct {
	Clocks []PeerClock `json:"clocks"`
	NowMS  int64       `json:"now_ms,omitempty"` // the cluster's now, Unix milliseconds; 0 from a build that does not say
	// HeardMS is how long ago each host was heard; nil unless asked for.
	HeardMS map[string]int64 `json:"heard_ms,omitempty"`
	// WebhooksSent is up to where the leader has sent webhooks; nil while it
	// sends none.
	WebhooksSent *Place `json:"webhooks_sent,omitempty"`
}

// PeerClock is the wall clock of one controller, as an offset in milliseconds
// from the answering leader's at the time of the answer.
type PeerClock struct {
	Node     string `json:"node"`
	OffsetMS int64  `json:"offset_ms"`
	AgoMS    int64  `json:"ago_ms"` // since it reported
}
