package wire

import "time"

// Job is a job on the /v1 wire. Its fields and their presence are those of the
// ancestor's API; the ones after StdIO are ours and always optional.
type Job struct {
	ID             string            `json:"id"`
	Selector       string            `json:"selector"`
	Kind           string            `json:"kind"`
	Command        []string          `json:"command"`
	Cwd            string            `json:"cwd"`
	Env            map[string]string `json:"env,omitempty"`
	Submitter      string            `json:"submitter"`
	IdempotencyKey string            `json:"idempotency_key,omitempty"`
	Priority       int               `json:"priority"`

	MaxRuntimeSeconds  int64      `json:"max_runtime_seconds,omitempty"`
	IdleTimeoutSeconds int64      `json:"idle_timeout_seconds,omitempty"`
	QueuedAt           *time.Time `json:"queued_at,omitempty"`
	State              string     `json:"state"`
	DeviceID           string     `json:"device_id"`
	WorkerID           string     `json:"worker_id"`
	ExitCode           *int       `json:"exit_code,omitempty"`
	KillReason         string     `json:"kill_reason,omitempty"`
	Reason             string     `json:"reason,omitempty"`
	Stdio              string     `json:"stdio,omitempty"`
	SubmittedAt        time.Time  `json:"submitted_at"`
	StartedAt          *time.Time `json:"started_at,omitempty"`
	FinishedAt         *time.Time `json:"finished_at,omitempty"`

	Lease        string   `json:"lease,omitempty"`          // the fencing token, "l-…"
	Devices      []string `json:"devices,omitempty"`        // only when there are several
	Output       string   `json:"output,omitempty"`         // stored | partial: at its end, on its host
	OutputBytes  *uint64  `json:"output_bytes,omitempty"`   // as the host stated it
	LateExitCode *int     `json:"late_exit_code,omitempty"` // truth after a terminal state
	Origin       string   `json:"origin,omitempty"`         // job | agent | device | host | user

	Hold           string `json:"hold,omitempty"`            // the hold that it runs inside, "j-…"
	SessionSeconds int64  `json:"session_seconds,omitempty"` // of a hold: how long its client may be silent
	SessionSilent  bool   `json:"session_silent,omitempty"`  // half of that has passed without a word of it
}

// Label is one fact about a device; Source is "detected" or "declared".
type Label struct {
	Key       string    `json:"key"`
	Value     string    `json:"value"`
	Source    string    `json:"source"`
	UpdatedAt time.Time `json:"updated_at"`
}

// Device is a device on the wire.
type Device struct {
	ID              string    `json:"id"`
	Host            string    `json:"host"`
	Name            string    `json:"name"`
	WorkerID        string    `json:"worker_id"`
	State           string    `json:"state"`
	LastHeartbeatAt time.Time `json:"last_heartbeat_at"`
	Labels          []Label   `json:"labels,omitempty"` // sorted by key, then source
}

// DeviceView is a device together with who holds it.
type DeviceView struct {
	Device                Device   `json:"device"`
	Holder                string   `json:"holder,omitempty"`
	JobID                 string   `json:"job_id,omitempty"`
	Kind                  string   `json:"kind,omitempty"`
	Reason                string   `json:"reason,omitempty"`
	Command               []string `json:"command,omitempty"`
	ElapsedSeconds        int64    `json:"elapsed_seconds"`
	HeartbeatAgeSeconds   int64    `json:"heartbeat_age_seconds"`
	OldestLabelAgeSeconds *int64   `json:"oldest_label_age_seconds,omitempty"`
	// QuarantineReason is what a person reads: the detail when there is one,
	// else the category.
	QuarantineReason string `json:"quarantine_reason,omitempty"`
	// QuarantineCategory says what ends a quarantine: fault, worker_lost,
	// lease_expired, registration or unrecorded.
	QuarantineCategory string `json:"quarantine_category,omitempty"`
	NotDeclared        bool   `json:"not_declared,omitempty"` // its host no longer declares it
}

// JobView is the answer to GET /v1/jobs/{id}.
type JobView struct {
	Job           Job `json:"job"`
	QueuePosition int `json:"queue_position,omitempty"` // 1-based
	// Waiting is there while the job is queued.
	Waiting *Waiting `json:"waiting,omitempty"`
}

// JobList is the answer to GET /v1/jobs, newest submitted first.
type JobList struct {
	Jobs []Job `json:"jobs"`
	// NextCursor, as ?cursor=, lists on from here; it is absent when these are
	// the last. What it lists is in it.
	NextCursor string `json:"next_cursor,omitempty"`
}

// State is the answer to GET /v1/state.
type State struct {
	Devices              []DeviceView     `json:"devices"`
	Jobs                 []Job            `json:"jobs"`
	Queued               []Job            `json:"queued"`
	QueuedWaitingSeconds map[string]int64 `json:"queued_waiting_seconds,omitempty"`
}

// SubmitRequest is the body of POST /v1/jobs.
type SubmitRequest struct {
	DeviceID           string            `json:"device_id,omitempty"`
	Selector           string            `json:"selector,omitempty"`
	Command            []string          `json:"command,omitempty"`
	Cwd                string            `json:"cwd,omitempty"`
	Env                map[string]string `json:"env,omitempty"`
	Submitter          string            `json:"submitter"`
	IdempotencyKey     string            `json:"idempotency_key,omitempty"`
	Priority           int               `json:"priority,omitempty"`
	MaxRuntimeSeconds  int64             `json:"max_runtime_seconds,omitempty"`
	IdleTimeoutSeconds int64             `json:"idle_timeout_seconds,omitempty"`
	NoWait             bool              `json:"no_wait,omitempty"`
	Kind               string            `json:"kind,omitempty"`
	Reason             string            `json:"reason,omitempty"`
	Stdio              string            `json:"stdio,omitempty"`
	// Hold is a running hold of the same submitter to run inside, instead of a
	// device_id or a selector.
	Hold string `json:"hold,omitempty"`
	// SessionSeconds, of a hold: it ends once no heartbeat has come for so long.
	SessionSeconds int64 `json:"session_seconds,omitempty"`
}

// BatchRequest is the body of POST /v1/jobs:batch: an array of jobs, all or
// none. One request ID, in the header or here, is that of all.
type BatchRequest struct {
	Jobs           []SubmitRequest `json:"jobs"`
	IdempotencyKey string          `json:"idempotency_key,omitempty"`
}

// Batch is the answer to POST /v1/jobs:batch: the jobs in the order of the
// request.
type Batch struct {
	Jobs []Job `json:"jobs"`
	// Repeat: the request ID was known and nothing was done; these are the jobs
	// of the first request as they stand now, without those forgotten since.
	Repeat bool `json:"repeat,omitempty"`
}

// KillRequest is the body of POST /v1/jobs/{id}/kill.
type KillRequest struct {
	Submitter string `json:"submitter"`
}

// Describe is the answer to GET /v1/devices/{id}/describe: all that is known of
// one device. The sheet fields are those of its usage sheet, empty without one.
type Describe struct {
	Device              Device           `json:"device"`
	Holder              string           `json:"holder,omitempty"`
	JobID               string           `json:"job_id,omitempty"`
	ElapsedSeconds      int64            `json:"elapsed_seconds"`
	HeartbeatAgeSeconds int64            `json:"heartbeat_age_seconds"`
	QuarantineReason    string           `json:"quarantine_reason,omitempty"`   // as in DeviceView
	QuarantineCategory  string           `json:"quarantine_category,omitempty"` // as in DeviceView
	NotDeclared         bool             `json:"not_declared,omitempty"`
	Labels              []Label          `json:"labels"`
	LabelAgeSeconds     map[string]int64 `json:"label_age_seconds"` // by "key/source"
	Sheet               string           `json:"sheet"`
	SheetUpdatedAt      time.Time        `json:"sheet_updated_at"` // the zero time without one
	SheetAgeSeconds     *int64           `json:"sheet_age_seconds,omitempty"`
	SheetIsHostWide     bool             `json:"sheet_is_host_wide"`
	RecentJobs          []Job            `json:"recent_jobs,omitempty"` // newest first

	// How often the device came back to the pool by itself inside the window,
	// newest first, and how often it still may; at 0 a quarantine waits for a
	// person.
	AutomaticReturns       []AutomaticReturn `json:"automatic_returns,omitempty"`
	AutomaticReturnsLeft   int64             `json:"automatic_returns_left"`
	AutomaticReturnsWindow int64             `json:"automatic_returns_window_seconds"`
	// ManualClear: its host wants no automatic returns at all. ProofDetail is
	// what the host's last proof said.
	ManualClear bool   `json:"manual_clear,omitempty"`
	ProofDetail string `json:"proof_detail,omitempty"`
}

// Whoami is the answer to GET /v1/whoami.
type Whoami struct {
	Role string `json:"role"`
}

// Ready is the answer to GET /readyz of a node that can answer requests.
type Ready struct {
	Ready  bool   `json:"ready"`
	Leader string `json:"leader"`
}

// Error is the body of every refusal: a code for programs, a sentence for
// people that says what to do next.
type Error struct {
	Code    string `json:"error"`
	Message string `json:"message"`
}

// Headers of answers.
const (
	HeaderInstance = "Rc-Controller-Instance" // new per controller process
	HeaderIndex    = "Rc-Index"               // index of the state the answer reflects
	HeaderLeader   = "Rc-Leader"              // ID of the leader the answer reflects, if any
	HeaderAge      = "Rc-Age-Ms"              // age of a stale answer
	// HeaderHeardAge is how old a stale answer's knowledge of the hosts' last
	// heartbeats is; it is absent when it comes from the lease table alone.
	HeaderHeardAge  = "Rc-Heard-Age-Ms"
	HeaderLogOffset = "Rc-Log-Offset" // offset of the first byte of a log body
	HeaderNode      = "Rc-Node"       // ID of the node that took the request
	HeaderRequestID = "Idempotency-Key"
)

// StreamProtocol is the name of the framed byte route in Upgrade headers.
const StreamProtocol = "rc-stream/1"

// Codes that the edge adds to those of the state machine.
const (
	CodeUnauthorized   = "unauthorized"
	CodeForbidden      = "forbidden"
	CodeBadRequest     = "bad_request"
	CodeNotFound       = "not_found"
	CodeNoDevice       = "no_device_available"
	CodeLogsNotStored  = "logs_not_stored"
	CodeNoLeader       = "no_leader"       // 503: nothing was changed
	CodeNotInCluster   = "not_in_cluster"  // 503: this node has nothing to show, and an empty list would look like the truth
	CodeNotReady       = "not_ready"       // 503: this node cannot answer yet, another one may
	CodeHalted         = "halted"          // 503: this node takes no part any more, another one may answer
	CodeOverloaded     = "overloaded"      // 503: nothing was changed
	CodeOutcomeUnknown = "outcome_unknown" // 504: ask again with the same request ID
	CodeBodyTooLarge   = "body_too_large"  // 413
	CodeAmbiguous      = "ambiguous_id"    // 400: the prefix fits several
	CodeNotAttachable  = "not_attachable"  // 400: the job has neither terminal nor pipe
	CodeNotPlaced      = "not_placed"      // 409: the job has no host yet
	CodeNotQueued      = "not_queued"      // 409: only a queued job waits
	CodeJobEnded       = "job_ended"       // 409: it has no session any more
	CodeAgentTooOld    = "agent_too_old"   // 409: the host's agent runs nothing inside a hold
	CodeStoreError     = "store_error"     // 500
)

// MaxBody bounds request bodies in bytes.
const MaxBody = 1 << 20
