package model

// Job is one row of the jobs table.
//
// Times that end in MS are Unix milliseconds of the cluster's *now*, for
// display only; UptimeMS fields count the cluster's *uptime*, which every rule
// uses. Zero means unset.
type Job struct {
	Number    uint64            `cbor:"1,keyasint"`
	Kind      JobKind           `cbor:"2,keyasint"`
	State     JobState          `cbor:"3,keyasint"`
	Pinned    string            `cbor:"4,keyasint"` // device ID asked for, or ""
	Selector  string            `cbor:"5,keyasint"` // as written by the submitter, or ""
	Count     uint32            `cbor:"6,keyasint"` // devices wanted; 1 until a later feature level
	Command   []string          `cbor:"7,keyasint"`
	Cwd       string            `cbor:"8,keyasint"`
	Env       map[string]string `cbor:"9,keyasint"`
	Submitter string            `cbor:"10,keyasint"`
	Identity  string            `cbor:"11,keyasint"` // scope of the request ID
	ClientKey string            `cbor:"12,keyasint"` // idempotency_key of the body, or ""
	Priority  int8              `cbor:"13,keyasint"`

	MaxRuntimeS  int64  `cbor:"14,keyasint"` // 0: none asked; set to the ceiling at placement
	IdleTimeoutS int64  `cbor:"15,keyasint"`
	Stdio        Stdio  `cbor:"16,keyasint"`
	Note         string `cbor:"17,keyasint"` // the submitter's "reason"
	NoWait       bool   `cbor:"18,keyasint"`

	QueueAtMS     int64 `cbor:"19,keyasint"` // queue key: (QueueAtMS, Number), smaller first
	SubmittedAtMS int64 `cbor:"20,keyasint"`
	QueuedAtMS    int64 `cbor:"21,keyasint"`
	StartedAtMS   int64 `cbor:"22,keyasint"`
	FinishedAtMS  int64 `cbor:"23,keyasint"`
	EndUptimeMS   int64 `cbor:"24,keyasint"` // uptime at the end; retention counts from here

	Devices    []string `cbor:"25,keyasint"` // placed on; kept after the end
	Host       string   `cbor:"26,keyasint"`
	Lease      uint64   `cbor:"27,keyasint"` // kept after the end
	PlacedTerm uint64   `cbor:"28,keyasint"` // epoch in which it was placed

	KillRequested bool   `cbor:"29,keyasint"` // kept after the end, for a late return
	KillBy        string `cbor:"30,keyasint"` // reason text of the kill request
	EndReason     string `cbor:"31,keyasint"` // wire field kill_reason
	Origin        Origin `cbor:"32,keyasint"`
	ExitCode      *int32 `cbor:"33,keyasint"` // nil: not known
	LateExitCode  *int32 `cbor:"34,keyasint"` // came after the terminal state

	Output       OutputState `cbor:"35,keyasint"`
	OutputLength uint64      `cbor:"36,keyasint"` // bytes; meaningful when OutputKnown
	OutputDigest []byte      `cbor:"37,keyasint"` // SHA-256 of the bytes, or empty
	OutputKnown  bool        `cbor:"38,keyasint"` // the host stated length and digest

	QueuedUptimeMS int64 `cbor:"39,keyasint"` // uptime at enqueue
	CeilingAsked   bool  `cbor:"40,keyasint"` // MaxRuntimeS came from the submitter, not from a ceiling

	// Hold is the number of the hold that the job runs inside, under its lease;
	// 0: it has a lease of its own. Feature level 2.
	Hold uint64 `cbor:"41,keyasint,omitempty"`
	// SessionS bounds the silence of the client that a hold lives and dies with,
	// in seconds; 0: the hold has no session. Feature level 2.
	SessionS int64 `cbor:"42,keyasint,omitempty"`
	// SessionSilent: half of SessionS has passed without a word of the client.
	SessionSilent bool `cbor:"43,keyasint,omitempty"`
}

// ID returns the public ID.
func (j *Job) ID() string { return JobID(j.Number) }

// Device returns the only device of a job that has exactly one, else "".
func (j *Job) Device() string {
	if len(j.Devices) == 1 {
		return j.Devices[0]
	}
	return ""
}

// EnvBytes returns the bytes of the names and values of the environment.
func (j *Job) EnvBytes() int64 { return EnvBytes(j.Env) }

// EnvBytes returns the bytes of the names and values in env.
func EnvBytes(env map[string]string) int64 {
	n := 0
	for name, value := range env {
		n += len(name) + len(value)
	}
	return int64(n)
}

// Lease is one row of the leases table. Its number is the fencing token. Only
// live leases have rows; an ended lease lives on in the rows of its jobs.
type Lease struct {
	Number           uint64   `cbor:"1,keyasint"`
	Devices          []string `cbor:"2,keyasint"` // sorted
	Jobs             []uint64 `cbor:"3,keyasint"` // sorted; more than one for work inside a hold
	Kind             JobKind  `cbor:"4,keyasint"`
	Holder           string   `cbor:"5,keyasint"`
	Note             string   `cbor:"6,keyasint"`
	Host             string   `cbor:"7,keyasint"`
	AcquiredAtMS     int64    `cbor:"8,keyasint"`
	AcquiredUptimeMS int64    `cbor:"9,keyasint"`
	Term             uint64   `cbor:"10,keyasint"`
	Begun            bool     `cbor:"11,keyasint"` // the host said that a job of it started
}

// Label is one fact about a device.
type Label struct {
	Key         string `cbor:"1,keyasint"`
	Value       string `cbor:"2,keyasint"`
	UpdatedAtMS int64  `cbor:"3,keyasint"`
}

// Recovery is one automatic return of a device to the pool.
type Recovery struct {
	UptimeMS int64  `cbor:"1,keyasint"`
	AtMS     int64  `cbor:"2,keyasint"`
	Reason   Reason `cbor:"3,keyasint"`
}

// Device is one row of the devices table.
type Device struct {
	ID          string      `cbor:"1,keyasint"`
	Host        string      `cbor:"2,keyasint"`
	Name        string      `cbor:"3,keyasint"`
	State       DeviceState `cbor:"4,keyasint"`
	Reason      Reason      `cbor:"5,keyasint"` // only while unhealthy
	Detail      string      `cbor:"6,keyasint"` // for people, never matched on
	MaxRuntimeS int64       `cbor:"7,keyasint"` // ceiling; 0: none
	Declared    []Label     `cbor:"8,keyasint"` // sorted by key
	Detected    []Label     `cbor:"9,keyasint"` // sorted by key
	Lease       uint64      `cbor:"10,keyasint"`
	// UnknownUptimeMS is when it turned unknown, 0 when it is not.
	UnknownUptimeMS int64      `cbor:"11,keyasint"`
	Recoveries      []Recovery `cbor:"12,keyasint"` // inside the flap window, oldest first
	// HighestLease is the highest lease number ever given for this device.
	HighestLease uint64 `cbor:"13,keyasint"`
	// Absent: its host's newest registration no longer declares it. It is
	// never ready while that lasts.
	Absent bool `cbor:"14,keyasint"`
}

// Label returns the effective value of a key: detected beats declared.
func (d *Device) Label(key string) (string, bool) {
	if v, ok := find(d.Detected, key); ok {
		return v, true
	}
	return find(d.Declared, key)
}

func find(labels []Label, key string) (string, bool) {
	for _, l := range labels {
		if l.Key == key {
			return l.Value, true
		}
	}
	return "", false
}

// Agent is one row of the agents table, keyed by host.
type Agent struct {
	Host             string `cbor:"1,keyasint"`
	MachineID        string `cbor:"2,keyasint"`
	BootID           string `cbor:"3,keyasint"`
	Instance         string `cbor:"4,keyasint"` // of the agent process
	RegisteredAtMS   int64  `cbor:"5,keyasint"`
	RegisteredUptime int64  `cbor:"6,keyasint"` // ms
	// Silent is set by a sweep and unset by one that heard the agent again.
	Silent bool `cbor:"7,keyasint"`
	// WrittenOff is set when silence made its devices unhealthy.
	WrittenOff bool `cbor:"8,keyasint"`
	// LastHeardMS is the now at which it was last known to be heard: carried
	// by registration and by sweeps, for stale answers.
	LastHeardMS int64 `cbor:"9,keyasint"`
	// ManualClear: the host wants no automatic return of its devices.
	ManualClear bool `cbor:"10,keyasint"`
	// ProofDetail is what its last proof said, for people.
	ProofDetail string `cbor:"11,keyasint"`
	// HeardUptimeMS is LastHeardMS in uptime, which rules count in.
	HeardUptimeMS int64 `cbor:"12,keyasint"`
	// Former are the instances before this one, newest last: whatever still
	// comes from them is late.
	Former []string `cbor:"13,keyasint"`
}

// Sheet is one usage sheet: of a host, or of one device.
type Sheet struct {
	Host        string `cbor:"1,keyasint"`
	Name        string `cbor:"2,keyasint"` // of the device, "" for the host's own
	Body        string `cbor:"3,keyasint"`
	UpdatedAtMS int64  `cbor:"4,keyasint"`
}

// Member is one controller, as it spoke for itself.
type Member struct {
	ID          string `cbor:"1,keyasint"`
	Incarnation string `cbor:"2,keyasint"` // of its data directory
	Supports    uint32 `cbor:"3,keyasint"` // highest feature level it knows
	Build       string `cbor:"4,keyasint"`
	SinceMS     int64  `cbor:"5,keyasint"`
}

// Unserved remembers since when registered devices cannot run the queued jobs
// of one target, by the runtime that the jobs ask for.
type Unserved struct {
	Target string `cbor:"1,keyasint"` // as the queue groups jobs
	// Steps have falling ceilings and rising times: jobs that need more than
	// a step's ceiling have had no device since then.
	Steps []UnservedStep `cbor:"2,keyasint"`
}

// UnservedStep is one fall of what the devices of a target tolerate.
type UnservedStep struct {
	CeilingS      int64 `cbor:"1,keyasint"` // -1: there is no device at all
	SinceUptimeMS int64 `cbor:"2,keyasint"`
}

// Request is what is kept of an accepted command with a request ID.
type Request struct {
	Scope    string   `cbor:"1,keyasint"`
	ID       string   `cbor:"2,keyasint"`
	Digest   []byte   `cbor:"3,keyasint"` // SHA-256 of the request body
	Kind     uint16   `cbor:"4,keyasint"` // command kind
	Jobs     []uint64 `cbor:"5,keyasint"`
	Device   string   `cbor:"6,keyasint"`
	Outcome  string   `cbor:"7,keyasint"` // result code; "" is plain success
	UptimeMS int64    `cbor:"8,keyasint"`
	Kill     uint8    `cbor:"9,keyasint,omitempty"` // outcome of a kill or a release
}
