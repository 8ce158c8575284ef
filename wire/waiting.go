package wire

import "time"

// Waiting says why a queued job waits and when it is expected to start.
type Waiting struct {
	Reasons       []WaitReason  `json:"reasons"` // at least one
	ExpectedStart ExpectedStart `json:"expected_start"`
}

// ExpectedStart is an interval in the cluster's time. A bound that cannot be
// said is absent, and then the note says why; else it says what can still make
// it later.
type ExpectedStart struct {
	Earliest *time.Time `json:"earliest,omitempty"`
	Latest   *time.Time `json:"latest,omitempty"`
	Note     string     `json:"note,omitempty"`
}

// WaitReason is one reason why a job waits: a code for programs, a sentence for
// people, and what the code is about.
type WaitReason struct {
	Code    string `json:"code"`
	Message string `json:"message"`

	// Devices are some of those concerned, MoreDevices counts the others.
	Devices     []WaitDevice `json:"devices,omitempty"`
	MoreDevices int          `json:"more_devices,omitempty"`
	// JobsAhead counts jobs that could take the same devices; with WholeFleet
	// all jobs ahead, whatever they want.
	JobsAhead  int  `json:"jobs_ahead,omitempty"`
	WholeFleet bool `json:"whole_fleet,omitempty"`
	// MaxRuntimeSeconds is what the job asks for, LargestCeilingSeconds what
	// devices allow at the most.
	MaxRuntimeSeconds     int64    `json:"max_runtime_seconds,omitempty"`
	LargestCeilingSeconds int64    `json:"largest_ceiling_seconds,omitempty"`
	Labels                []string `json:"labels,omitempty"` // keys that keep devices from matching just now
	// Since when no registered device can run the job; it ends when that lasts.
	Since *time.Time `json:"since,omitempty"`
}

// The codes of reasons.
const (
	WaitNoDevice       = "no_device"
	WaitNoneTolerates  = "none_tolerates"
	WaitNoneMatchesNow = "none_matches_now"
	WaitDeviceBusy     = "device_busy"
	WaitDeviceOut      = "device_out_of_pool"
	WaitBehind         = "behind"
)

// WaitDevice is a device that a job could use, and what keeps it.
type WaitDevice struct {
	DeviceID string `json:"device_id"`
	State    string `json:"state"`
	// NotDeclared: its host's newest registration does not have it any more.
	NotDeclared      bool   `json:"not_declared,omitempty"`
	QuarantineReason string `json:"quarantine_reason,omitempty"` // the category
	Detail           string `json:"detail,omitempty"`

	JobID  string `json:"job_id,omitempty"` // that holds it
	Holder string `json:"holder,omitempty"`
	Reason string `json:"reason,omitempty"` // of a hold
	// LatestEnd is when its holder has left it at the latest, absent without a
	// limit. PastLimit: its job is over its limit and has not ended.
	LatestEnd *time.Time `json:"latest_end,omitempty"`
	PastLimit bool       `json:"past_limit,omitempty"`
}

// Explain is the answer to GET /v1/explain.
type Explain struct {
	Selector   string   `json:"selector"`
	Matching   []string `json:"matching"`
	Free       []string `json:"free"`
	QueueDepth int      `json:"queue_depth"`

	JobID             string `json:"job_id,omitempty"`    // the queued job explained, if one was named
	DeviceID          string `json:"device_id,omitempty"` // that it is pinned to
	MaxRuntimeSeconds int64  `json:"max_runtime_seconds,omitempty"`
	// Tolerating are the matching ones that allow the runtime.
	Tolerating []string `json:"tolerating"`
	// Devices are the matching ones in the order in which they can be had,
	// MoreDevices counts those left out.
	Devices       []ExplainedDevice `json:"devices"`
	MoreDevices   int               `json:"more_devices,omitempty"`
	Reasons       []WaitReason      `json:"reasons,omitempty"` // none: it would start at once
	ExpectedStart ExpectedStart     `json:"expected_start"`
}

// ExplainedDevice is a device as a job would find it.
type ExplainedDevice struct {
	WaitDevice
	CeilingSeconds int64 `json:"ceiling_seconds,omitempty"`
	Tolerates      bool  `json:"tolerates"`
}
