package command

import "rcd/model"

// Code is why a command was rejected; the empty code means accepted. Codes are
// the wire's error codes where the API has one.
type Code string

// The codes of the state machine.
const (
	OK                 Code = ""
	StaleEpoch         Code = "stale_epoch" // not remembered; the proposer retries
	InternalInvariant  Code = "internal_invariant"
	BadRequest         Code = "bad_request"
	BadSelector        Code = "bad_selector"
	PriorityOutOfRange Code = "priority_out_of_range"
	UnknownDevice      Code = "unknown_device"
	NoMatchingDevice   Code = "no_matching_device"
	RuntimeAboveLimit  Code = "runtime_above_ceiling"
	// NotPlaced is an accepted no_wait job that found no free device: the row
	// stays, ended as killed.
	NotPlaced        Code = "not_placed"
	QueueFull        Code = "queue_full"
	TooManySelectors Code = "too_many_selectors"
	EnvTooLarge      Code = "env_too_large"
	ArrayTooLarge    Code = "array_too_large"
	KeyReused        Code = "idempotency_key_reused" // 422: same key, another body
	Overloaded       Code = "overloaded"             // request table at its bound
	NotFound         Code = "not_found"
	NotJobOwner      Code = "not_job_owner"
	NotCancellable   Code = "not_cancellable"
	DeviceNotCleared Code = "device_not_cleared"
	UnknownAgent     Code = "unknown_agent"  // host never registered
	StaleInstance    Code = "stale_instance" // another agent process has registered since
	WrongMachine     Code = "wrong_machine"  // another machine ID for a known host
	StaleLease       Code = "stale_lease"    // the lease named is not the job's live one
	AlreadyEnded     Code = "already_ended"  // the job is terminal; late truth was added
	UnknownSetting   Code = "unknown_setting"
	SettingRefused   Code = "setting_refused"
	LimitExceeded    Code = "limit_exceeded" // hosts, devices, labels
	DeviceNotFound   Code = "device_not_found"
	DeviceBusy       Code = "device_busy"         // a live lease is in the way
	NoDevice         Code = "no_device_available" // allocation of a device that is not ready
	Unscheduled      Code = "unscheduled_work"    // the entry has jobs to place first
	SheetTooLarge    Code = "sheet_too_large"
	NotExtendable    Code = "not_extendable"
	NotReleasable    Code = "not_releasable"
	FeatureRefused   Code = "feature_not_supported" // a member does not know the level
	StaleCheckpoint  Code = "stale_checkpoint"      // at or below the last one
	HoldEnded        Code = "hold_ended"            // the hold to run inside has ended, or is being ended
	HoldWaiting      Code = "hold_waiting"          // the hold to run inside has no device yet
	HoldFull         Code = "hold_full"             // as many jobs run inside it as may
)

// Result is the answer to one command, the same on every replica. Answers are
// made after the entry's scheduling.
type Result struct {
	Code    Code
	Message string // a sentence that says what to do next; empty when accepted
	// Jobs are the rows the command made or named, after scheduling. For a
	// repeated request they are the rows of the first one as they stand now.
	Jobs []*model.Job
	// Positions are the queue positions (1-based, 0: not queued) of Jobs.
	Positions []int
	Device    *model.Device
	// Repeat: the request ID was known and nothing was done.
	Repeat bool
	// Kill says which of the three outcomes a job.kill had.
	Kill KillOutcome
}

// KillOutcome is how an accepted job.kill went.
type KillOutcome uint8

// The outcomes of an accepted kill.
const (
	KillNone      KillOutcome = iota
	KillCancelled             // it was queued and is ended
	KillAsked                 // its host is asked; the end comes with job.finish
	KillFinalized             // its host is out of reach: ended here, flag kept
)

// EventKind says what happened.
type EventKind uint8

// The events of the state machine.
const (
	EventEpoch            EventKind = iota + 1 // Term begun
	EventAgentRegistered                       // Host, Instance
	EventJobQueued                             // Job
	EventJobPlaced                             // Job, Lease, Host, Device
	EventJobRequeued                           // Job went back to its old place
	EventJobStarted                            // Job, Lease, Host
	EventJobEnded                              // Job, Host, Reason
	EventJobLateTruth                          // Job, Host
	EventKillRequested                         // Job, Host
	EventLeaseEnded                            // Lease, Host
	EventDeviceState                           // Device, Host, Reason: state, reason or detail changed
	EventDeviceRecovered                       // Device, Host, Reason it was out for
	EventLabels                                // Device, Host
	EventSettings                              //
	EventInvariant                             // Reason: which invariant an aborted entry broke
	EventJobExtended                           // Job, Lease, Host
	EventSheets                                // Host
	EventDeviceRetired                         // Device, Host
	EventRecoveryWithheld                      // Device, Host, Reason: its automatic returns are used up
	EventWriteOffWithheld                      // Reason: how many of how many agents
	EventFeature                               // Reason: the level
	EventMembers                               // Reason: the controller
	EventCheckpoint                            // a majority of the voters held one digest
	EventDiverged                              // Reason: a controller whose digest differs from the majority's
	EventNoMajority                            // Reason: who held what; the digests differ and no majority holds one
	EventHoldSilent                            // Job, Host: half of the silence that its session allows has passed
	EventHoldHeard                             // Job, Host: its client has been heard again
)

// Event is one thing that happened while an entry was applied. Index is the
// entry's. Fields that an event does not name are zero.
type Event struct {
	Index    uint64
	Term     uint64
	Kind     EventKind
	Job      uint64
	Lease    uint64
	Host     string
	Device   string
	Instance string
	Reason   string
}
