package model

// JobKind says what a job is for.
type JobKind uint8

// The kinds are persisted: append only.
const (
	KindJob  JobKind = 0
	KindHold JobKind = 1 // a lease for a person; runs no command
)

// String returns the word used on the wire.
func (k JobKind) String() string {
	if k == KindHold {
		return "hold"
	}
	return "job"
}

// ParseJobKind returns the kind for a wire word; "" means a job.
func ParseJobKind(s string) (JobKind, bool) {
	switch s {
	case "", "job":
		return KindJob, true
	case "hold":
		return KindHold, true
	}
	return 0, false
}

// JobState is where a job is in its life: queued, assigned, running, then one
// of the four terminal states for good.
type JobState uint8

// The states are persisted: append only.
const (
	JobQueued    JobState = 0
	JobAssigned  JobState = 1
	JobRunning   JobState = 2
	JobSucceeded JobState = 3
	JobFailed    JobState = 4
	JobKilled    JobState = 5
	JobLost      JobState = 6
)

var jobStates = [...]string{"queued", "assigned", "running", "succeeded", "failed", "killed", "lost"}

// String returns the word used on the wire.
func (s JobState) String() string { return word(jobStates[:], uint8(s)) }

// Terminal reports whether the job has ended; a terminal state never changes.
func (s JobState) Terminal() bool { return s >= JobSucceeded }

// Active reports whether the job holds devices.
func (s JobState) Active() bool { return s == JobAssigned || s == JobRunning }

// ParseJobState returns the state for a wire word.
func ParseJobState(s string) (JobState, bool) {
	for i, w := range jobStates {
		if w == s {
			return JobState(i), true
		}
	}
	return 0, false
}

// Stdio says how a job's standard streams are wired.
type Stdio uint8

// The modes are persisted: append only.
const (
	StdioLogs Stdio = 0 // output goes to the spool, stdin is empty
	StdioTTY  Stdio = 1
	StdioPipe Stdio = 2
)

var stdios = [...]string{"", "tty", "pipe"}

// String returns the word used on the wire; logs is the empty word.
func (s Stdio) String() string { return word(stdios[:], uint8(s)) }

// ParseStdio returns the mode for a wire word; "" means logs.
func ParseStdio(s string) (Stdio, bool) {
	for i, w := range stdios {
		if w == s {
			return Stdio(i), true
		}
	}
	return 0, false
}

// DeviceState says whether a device may be leased. Only a ready device is ever
// given to a job.
type DeviceState uint8

// The states are persisted: append only.
const (
	DeviceReady     DeviceState = 0
	DeviceBusy      DeviceState = 1 // has a live lease and an agent in contact
	DeviceUnknown   DeviceState = 2 // its agent is silent; may have a live lease
	DeviceUnhealthy DeviceState = 3 // in quarantine; Reason says why
)

var deviceStates = [...]string{"ready", "busy", "unknown", "unhealthy"}

// String returns the word used on the wire.
func (s DeviceState) String() string { return word(deviceStates[:], uint8(s)) }

// Reason is why a device is in quarantine. A milder reason never replaces a
// graver one, and ReasonUnrecorded is never taken for benign.
type Reason uint8

// The reasons are persisted: append only.
const (
	ReasonNone         Reason = 0
	ReasonWorkerLost   Reason = 1 // its agent was silent past the bound
	ReasonLeaseExpired Reason = 2 // an attached agent did not name the lease
	ReasonRegistration Reason = 3 // a fresh agent no longer supervises the job
	ReasonFault        Reason = 4 // the host says the hardware is unfit
	ReasonUnrecorded   Reason = 5 // unknown cause: waits for an operator
)

var reasons = [...]string{"", "worker_lost", "lease_expired", "registration", "fault", "unrecorded"}

// String returns the word used on the wire.
func (r Reason) String() string { return word(reasons[:], uint8(r)) }

// Origin says which part of the system a job's end came from.
type Origin uint8

// The origins are persisted: append only.
const (
	OriginJob    Origin = 0
	OriginAgent  Origin = 1
	OriginDevice Origin = 2
	OriginHost   Origin = 3
	OriginUser   Origin = 4 // killed or cancelled by request
)

var origins = [...]string{"job", "agent", "device", "host", "user"}

// String returns the word used on the wire.
func (o Origin) String() string { return word(origins[:], uint8(o)) }

// OutputState says what became of a job's output.
type OutputState uint8

// The states are persisted: append only.
const (
	OutputNone    OutputState = 0 // not ended yet, or never started
	OutputStored  OutputState = 1 // whole, at the length job.finish stated
	OutputPartial OutputState = 2 // a range is gone, or its length is unknown
	OutputStoring OutputState = 3 // not in use: how far copies are is not in the lease table
)

var outputStates = [...]string{"", "stored", "partial", "storing"}

// String returns the word used on the wire.
func (o OutputState) String() string { return word(outputStates[:], uint8(o)) }

// Source says where a label came from. Detected beats declared.
type Source uint8

// The sources are persisted: append only.
const (
	Declared Source = 0
	Detected Source = 1
)

// String returns the word used on the wire.
func (s Source) String() string {
	if s == Detected {
		return "detected"
	}
	return "declared"
}

func word(words []string, n uint8) string {
	if int(n) < len(words) {
		return words[n]
	}
	return "unrecorded"
}
