package command

import "rcd/model"

// EpochBegin is the first command of a term. Nothing else is accepted before
// it, and nothing of an older term after it.
type EpochBegin struct {
	Node string `cbor:"1,keyasint"` // ID of the leader
	// MedianMS is the median of the wall clocks (Unix milliseconds) that a
	// majority reported in the last minute, 0 when none is known.
	MedianMS int64 `cbor:"2,keyasint"`
	// WallMS is the proposer's own wall clock, used when no median is known.
	WallMS int64 `cbor:"3,keyasint"`
}

// KV is one label.
type KV struct {
	Key   string `cbor:"1,keyasint"`
	Value string `cbor:"2,keyasint"`
}

// DeviceSpec is one device as its host declares it.
type DeviceSpec struct {
	Name        string `cbor:"1,keyasint"`
	MaxRuntimeS int64  `cbor:"2,keyasint"` // ceiling; 0: none
	Declared    []KV   `cbor:"3,keyasint"` // host-wide ones merged in; replaces the stored set
	Detected    []KV   `cbor:"4,keyasint"`
	// KeepDetected leaves the stored detected labels alone: the probe failed,
	// which is not the same as finding nothing.
	KeepDetected bool `cbor:"5,keyasint"`
	// Begun is the highest lease number the host has begun for this device.
	Begun uint64 `cbor:"6,keyasint"`
}

// JobRef names a job under its lease.
type JobRef struct {
	Job   uint64 `cbor:"1,keyasint"`
	Lease uint64 `cbor:"2,keyasint"`
}

// Proof is what a host can say about processes of earlier jobs.
type Proof struct {
	Isolated         bool   `cbor:"1,keyasint"` // observed alone in its PID namespace
	SurvivorsChecked bool   `cbor:"2,keyasint"`
	SurvivorsFound   bool   `cbor:"3,keyasint"` // outside the trees of the jobs named below
	Detail           string `cbor:"4,keyasint"`
}

// AgentRegister announces a fresh agent process (instance) on a host.
type AgentRegister struct {
	Host      string       `cbor:"1,keyasint"`
	MachineID string       `cbor:"2,keyasint"`
	BootID    string       `cbor:"3,keyasint"`
	Instance  string       `cbor:"4,keyasint"`
	Devices   []DeviceSpec `cbor:"5,keyasint"`
	// Jobs are those it still supervises, ended ones with an unacked outcome
	// included.
	Jobs  []JobRef `cbor:"6,keyasint"`
	Proof Proof    `cbor:"7,keyasint"`
	// RequireManualClear: the host wants no automatic return of its devices.
	RequireManualClear bool `cbor:"8,keyasint"`
}

// JobSpec is one job to be queued. Exactly one of Pinned and Selector is set.
type JobSpec struct {
	Kind         model.JobKind     `cbor:"1,keyasint"`
	Pinned       string            `cbor:"2,keyasint"`
	Selector     string            `cbor:"3,keyasint"`
	Command      []string          `cbor:"4,keyasint"`
	Cwd          string            `cbor:"5,keyasint"`
	Env          map[string]string `cbor:"6,keyasint"`
	Submitter    string            `cbor:"7,keyasint"`
	ClientKey    string            `cbor:"8,keyasint"`
	Priority     int8              `cbor:"9,keyasint"` // -10 to 10
	MaxRuntimeS  int64             `cbor:"10,keyasint"`
	IdleTimeoutS int64             `cbor:"11,keyasint"`
	Stdio        model.Stdio       `cbor:"12,keyasint"`
	Note         string            `cbor:"13,keyasint"`
	NoWait       bool              `cbor:"14,keyasint"`
	// Hold is the number of a running hold to run inside, instead of a target of
	// its own. Feature level 2.
	Hold uint64 `cbor:"15,keyasint,omitempty"`
	// SessionS, of a hold: it ends once its client has been silent for so many
	// seconds. Feature level 2.
	SessionS int64 `cbor:"16,keyasint,omitempty"`
}

// JobEnqueue queues one job or an array, all or nothing.
type JobEnqueue struct {
	Jobs []JobSpec `cbor:"1,keyasint"`
}

// JobStart says that the host has started the job's process.
type JobStart struct {
	JobRef
	Host     string `cbor:"3,keyasint"`
	Instance string `cbor:"4,keyasint"`
}

// EndKind says how a process ended.
type EndKind uint8

// The kinds are persisted: append only.
const (
	EndExited         EndKind = 0 // by itself; ExitCode is its own
	EndKilled         EndKind = 1 // by us: kill, watchdog
	EndStartFailed    EndKind = 2 // never ran; ExitCode is -1
	EndSupervisorDied EndKind = 3 // code unknown
)

// JobFinish carries the outcome of a job, as its host knows it.
type JobFinish struct {
	JobRef
	Host         string  `cbor:"3,keyasint"`
	Instance     string  `cbor:"4,keyasint"`
	End          EndKind `cbor:"5,keyasint"`
	ExitCode     *int32  `cbor:"6,keyasint"` // nil: not known
	Reason       string  `cbor:"7,keyasint"`
	Origin       uint8   `cbor:"8,keyasint"` // model.Origin
	OutputLength uint64  `cbor:"9,keyasint"`
	OutputDigest []byte  `cbor:"10,keyasint"`
	OutputKnown  bool    `cbor:"11,keyasint"`
	OutputGap    bool    `cbor:"12,keyasint"` // a range was dropped at its bound
	// Survivors names processes of the job that could not be ended; when it is
	// not empty the devices go to quarantine as faulty, with this detail.
	Survivors string `cbor:"13,keyasint"`
}

// JobKill asks for the end of a job.
type JobKill struct {
	Job uint64 `cbor:"1,keyasint"`
	By  string `cbor:"2,keyasint"` // submitter who asks
	// Admin: the caller may end anybody's job.
	Admin bool `cbor:"3,keyasint"`
	// Detached: the leader has no contact with the job's host.
	Detached bool `cbor:"4,keyasint"`
}

// DeviceClear is an operator's word that a quarantined device is free.
type DeviceClear struct {
	Device string `cbor:"1,keyasint"`
}

// AgentSilence is the evidence about one agent.
type AgentSilence struct {
	Host     string `cbor:"1,keyasint"`
	Instance string `cbor:"2,keyasint"`
	// SilenceMS is how long no controller has heard it, counted from the
	// epoch's start at the earliest.
	SilenceMS int64 `cbor:"3,keyasint"`
	// DetachedMS is how long it has had no session, 0 while it has one.
	DetachedMS int64 `cbor:"4,keyasint"`
}

// LeaseUnnamed is the evidence about one lease: how long an *attached* agent
// has not named it.
type LeaseUnnamed struct {
	Lease     uint64 `cbor:"1,keyasint"`
	UnnamedMS int64  `cbor:"2,keyasint"`
}

// AgentHeard names an agent that was silent and is in contact again.
type AgentHeard struct {
	Host     string `cbor:"1,keyasint"`
	Instance string `cbor:"2,keyasint"`
}

// Sweep carries a leader's evidence; every rule is checked again on apply.
type Sweep struct {
	Silent  []AgentSilence `cbor:"1,keyasint"`
	Unnamed []LeaseUnnamed `cbor:"2,keyasint"`
	Heard   []AgentHeard   `cbor:"3,keyasint"`
	// Unordered are jobs placed in this epoch whose order was never written to
	// any session: they go back to their old place in the queue when their
	// device turns unknown.
	Unordered []uint64 `cbor:"4,keyasint"`
	// EpochMS is the age of the epoch on the leader's monotonic clock.
	EpochMS int64 `cbor:"5,keyasint"`
	// Sessions are holds whose client the leader has not heard lately, or has
	// heard again. Feature level 2.
	Sessions []SessionSilence `cbor:"6,keyasint,omitempty"`
}

// SessionSilence is what the leader knows of the client that a hold lives and
// dies with: for how long it has not been heard, from the start of the epoch at
// the earliest. 0: it has just been heard.
type SessionSilence struct {
	Job       uint64 `cbor:"1,keyasint"`
	SilenceMS int64  `cbor:"2,keyasint"`
}

// JobPrune forgets finished jobs past the replicated bounds, oldest first, and
// request IDs past theirs, at most Limit rows of each.
type JobPrune struct {
	Limit uint32 `cbor:"1,keyasint"`
}

// Setting is a change of one replicated setting by its name.
type Setting struct {
	Name  string `cbor:"1,keyasint"` // as SettingNames lists them
	Value int64  `cbor:"2,keyasint"` // milliseconds, counts, bytes, or 0/1
}

// ConfigSet changes replicated settings, all or nothing.
type ConfigSet struct {
	Settings []Setting `cbor:"1,keyasint"`
}
