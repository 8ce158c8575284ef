package wire

// AgentProtocol is the version of the agent messages below, as an agent's hello
// says it. A controller takes agents from MinAgentProtocol on and refuses later
// ones with a sentence, so controllers are upgraded first. What is marked as of
// a protocol goes only to a peer that has shown that it speaks it: agents send
// it after a welcome, controllers to agents whose hello or reports say so.
//
// Protocol 2 added the limits in reports, OrderExtend, Facts and DeviceFault.
// Protocol 3 added byte streams that attach to a job's input. Protocol 4 added
// jobs inside a hold, the lease number in the answer to a fault, and windows of
// input.
const (
	AgentProtocol    = 4
	MinAgentProtocol = 1
)

// MaxAgentMessage bounds one encoded agent message in bytes.
const MaxAgentMessage = 2 << 20

// AgentMessage is one message on a control stream, either way: exactly one
// field is set. It travels as a length-prefixed CBOR value (codec.WriteMessage).
type AgentMessage struct {
	Hello        *Hello        `cbor:"1,keyasint,omitempty"`  // agent → controller, first; again when a leader wants proof
	Welcome      *Welcome      `cbor:"2,keyasint,omitempty"`  // leader → agent
	Redirect     *Redirect     `cbor:"3,keyasint,omitempty"`  // follower → agent; repeated when the leader changes
	Heartbeat    *Heartbeat    `cbor:"4,keyasint,omitempty"`  // agent → controller, every 2 s, also to a follower
	HeartbeatAck *HeartbeatAck `cbor:"5,keyasint,omitempty"`  // controller → agent
	Order        *Order        `cbor:"6,keyasint,omitempty"`  // leader → agent
	OrderAck     *OrderAck     `cbor:"7,keyasint,omitempty"`  // agent → leader
	Started      *Started      `cbor:"8,keyasint,omitempty"`  // agent → leader
	Outcome      *Outcome      `cbor:"9,keyasint,omitempty"`  // agent → leader, until acked
	OutcomeAck   *OutcomeAck   `cbor:"10,keyasint,omitempty"` // leader → agent
	Refused      *Refused      `cbor:"11,keyasint,omitempty"` // controller → agent: the hello is refused
	BytesHello   *BytesHello   `cbor:"12,keyasint,omitempty"` // agent → leader, first on a bytes session
	Facts        *Facts        `cbor:"13,keyasint,omitempty"` // agent → leader, until acked
	FactsAck     *FactsAck     `cbor:"14,keyasint,omitempty"` // leader → agent
	Fault        *DeviceFault  `cbor:"15,keyasint,omitempty"` // agent → leader, until acked
	FaultAck     *FaultAck     `cbor:"16,keyasint,omitempty"` // leader → agent
}

// Controller is where one controller can be reached (its --listen address as
// the cluster knows it).
type Controller struct {
	ID   string `cbor:"1,keyasint"`
	Addr string `cbor:"2,keyasint"`
}

// LabelKV is one label.
type LabelKV struct {
	Key   string `cbor:"1,keyasint"`
	Value string `cbor:"2,keyasint"`
}

// AgentDevice is one device as the host declares it.
type AgentDevice struct {
	Name         string    `cbor:"1,keyasint"`
	MaxRuntimeS  int64     `cbor:"2,keyasint"`
	Declared     []LabelKV `cbor:"3,keyasint"`
	Detected     []LabelKV `cbor:"4,keyasint"`
	KeepDetected bool      `cbor:"5,keyasint"`
	Begun        uint64    `cbor:"6,keyasint"` // highest lease begun, from disk
}

// JobPhase is how far a job has come on its host.
type JobPhase uint8

// The phases are part of the protocol: append only.
const (
	PhaseStarting JobPhase = 0
	PhaseRunning  JobPhase = 1
	PhaseEnded    JobPhase = 2 // its outcome is not acked yet
)

// ReportedJob is one job that the agent supervises, or one that ended and
// whose outcome is not acked.
type ReportedJob struct {
	Job   uint64   `cbor:"1,keyasint"`
	Lease uint64   `cbor:"2,keyasint"`
	Phase JobPhase `cbor:"3,keyasint"`
	// Killing: the agent is already ending it.
	Killing bool `cbor:"4,keyasint"`
	// MaxRuntimeS is the limit that the host ends the job by. 0: none, or not
	// told, or one that cannot be lengthened. Protocol 2; never in a hello, which
	// an earlier controller must be able to read before it refuses.
	MaxRuntimeS int64 `cbor:"5,keyasint,omitempty"`
}

// HostProof is what the host can say about processes of earlier jobs.
type HostProof struct {
	Isolated         bool   `cbor:"1,keyasint"`
	SurvivorsChecked bool   `cbor:"2,keyasint"`
	SurvivorsFound   bool   `cbor:"3,keyasint"`
	Detail           string `cbor:"4,keyasint"`
}

// Hello opens every control stream.
type Hello struct {
	Protocol           int           `cbor:"1,keyasint"`
	Host               string        `cbor:"2,keyasint"`
	MachineID          string        `cbor:"3,keyasint"`
	BootID             string        `cbor:"4,keyasint"`
	Instance           string        `cbor:"5,keyasint"`
	Term               uint64        `cbor:"6,keyasint"` // highest seen, from disk
	Index              uint64        `cbor:"7,keyasint"` // highest seen; of a later hello that of the ack which wished for it
	Devices            []AgentDevice `cbor:"8,keyasint"`
	Jobs               []ReportedJob `cbor:"9,keyasint"`
	Proof              HostProof     `cbor:"10,keyasint"`
	RequireManualClear bool          `cbor:"11,keyasint"`
	Version            string        `cbor:"12,keyasint"` // of the agent's build, for people
}

// Welcome takes an agent in. Orders follow.
type Welcome struct {
	Leader      string       `cbor:"1,keyasint"`
	ClusterID   string       `cbor:"2,keyasint"`
	Generation  uint64       `cbor:"3,keyasint"`
	Term        uint64       `cbor:"4,keyasint"`
	Index       uint64       `cbor:"5,keyasint"`
	Controllers []Controller `cbor:"6,keyasint"`
	// Facts is the Digest of the facts of the host as the table has them, so
	// that they are not told again after each failover. Protocol 2; empty: all
	// of them are to be told.
	Facts []byte `cbor:"7,keyasint,omitempty"`
}

// Redirect says who leads. Leader is empty while nobody is known to.
type Redirect struct {
	Leader      string       `cbor:"1,keyasint"`
	Addr        string       `cbor:"2,keyasint"`
	Term        uint64       `cbor:"3,keyasint"`
	Controllers []Controller `cbor:"4,keyasint"`
}

// Refused ends a session for a reason that a retry alone does not mend.
type Refused struct {
	Code    string `cbor:"1,keyasint"`
	Message string `cbor:"2,keyasint"`
}

// Heartbeat names everything the agent supervises.
type Heartbeat struct {
	Seq    uint64        `cbor:"1,keyasint"`
	Jobs   []ReportedJob `cbor:"2,keyasint"`
	WallMS int64         `cbor:"3,keyasint"` // the host's wall clock
}

// HeartbeatAck answers a heartbeat.
type HeartbeatAck struct {
	Seq         uint64       `cbor:"1,keyasint"`
	Index       uint64       `cbor:"2,keyasint"`
	Controllers []Controller `cbor:"3,keyasint"`
	// Prove asks for another hello in this session: a device of the host is in
	// quarantine for a reason that a fresh proof may answer.
	Prove bool `cbor:"4,keyasint,omitempty"`
}

// OrderKind is what a leader tells an agent to do.
type OrderKind uint8

// The kinds are part of the protocol: append only.
const (
	OrderStart OrderKind = 1 // start Start.Job; a repeat answers with its present state
	OrderKill  OrderKind = 2 // end Job's process tree
	OrderBytes OrderKind = 3 // dial a bytes session to this leader
	// OrderReport asks for the outcome of an ended job again.
	OrderReport OrderKind = 4
	// OrderExtend lengthens the limit of a job that has one to MaxRuntimeS,
	// counted from its start; a shorter or equal one changes nothing. Protocol 2.
	OrderExtend OrderKind = 5
)

// Order is fenced by (Generation, Term, Index): an agent that has seen a
// higher term refuses it.
type Order struct {
	Generation uint64    `cbor:"1,keyasint"`
	Term       uint64    `cbor:"2,keyasint"`
	Index      uint64    `cbor:"3,keyasint"`
	Seq        uint64    `cbor:"4,keyasint"` // of this session, from 1
	Kind       OrderKind `cbor:"5,keyasint"`
	Job        uint64    `cbor:"6,keyasint"`
	Lease      uint64    `cbor:"7,keyasint"`
	Reason     string    `cbor:"8,keyasint"` // of a kill
	Start      *StartJob `cbor:"9,keyasint,omitempty"`
	// MaxRuntimeS is that of an OrderExtend, in seconds.
	MaxRuntimeS int64 `cbor:"10,keyasint,omitempty"`
}

// StartJob is what a host needs to run a job.
type StartJob struct {
	Job          uint64            `cbor:"1,keyasint"`
	Lease        uint64            `cbor:"2,keyasint"`
	Kind         uint8             `cbor:"3,keyasint"` // model.JobKind
	Devices      []string          `cbor:"4,keyasint"` // device IDs
	Command      []string          `cbor:"5,keyasint"`
	Cwd          string            `cbor:"6,keyasint"`
	Env          map[string]string `cbor:"7,keyasint"` // the submitter's
	Submitter    string            `cbor:"8,keyasint"`
	MaxRuntimeS  int64             `cbor:"9,keyasint"`
	IdleTimeoutS int64             `cbor:"10,keyasint"`
	Stdio        uint8             `cbor:"11,keyasint"` // model.Stdio
	// Hold is the job number of the hold whose lease this job shares; 0: the
	// lease is its own. Protocol 4.
	Hold uint64 `cbor:"12,keyasint,omitempty"`
}

// OrderAck answers an order. Code is empty when it was taken.
type OrderAck struct {
	Seq     uint64       `cbor:"1,keyasint"`
	Code    string       `cbor:"2,keyasint"` // stale_term | stale_lease | unknown_job | unknown_device | busy | failed
	Message string       `cbor:"3,keyasint"`
	Job     *ReportedJob `cbor:"4,keyasint,omitempty"` // its present state, when there is one
}

// Codes of an OrderAck.
const (
	OrderStaleTerm     = "stale_term"
	OrderStaleLease    = "stale_lease"
	OrderUnknownJob    = "unknown_job"
	OrderUnknownDevice = "unknown_device"
	OrderFailed        = "failed"
)

// Started says that the process of a job runs.
type Started struct {
	Job   uint64 `cbor:"1,keyasint"`
	Lease uint64 `cbor:"2,keyasint"`
}

// Outcome is how a job ended. The agent keeps it until it is acked by index.
type Outcome struct {
	Job          uint64 `cbor:"1,keyasint"`
	Lease        uint64 `cbor:"2,keyasint"`
	End          uint8  `cbor:"3,keyasint"` // command.EndKind
	ExitCode     *int32 `cbor:"4,keyasint"`
	Reason       string `cbor:"5,keyasint"`
	Origin       uint8  `cbor:"6,keyasint"` // model.Origin
	OutputLength uint64 `cbor:"7,keyasint"`
	OutputDigest []byte `cbor:"8,keyasint"`
	OutputKnown  bool   `cbor:"9,keyasint"`
	OutputGap    bool   `cbor:"10,keyasint"`
	Survivors    string `cbor:"11,keyasint"`
}

// OutcomeAck says that an outcome is in the log at Index (or that the lease
// table has no use for it): the agent may forget the record.
type OutcomeAck struct {
	Job   uint64 `cbor:"1,keyasint"`
	Lease uint64 `cbor:"2,keyasint"`
	Index uint64 `cbor:"3,keyasint"`
}

// BytesHello opens a bytes session and ties it to a control session.
type BytesHello struct {
	Host     string `cbor:"1,keyasint"`
	Instance string `cbor:"2,keyasint"`
	Term     uint64 `cbor:"3,keyasint"`
}
