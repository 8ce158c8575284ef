package wire

import "time"

// FaultRequest is the body of POST /v1/devices/{id}/fault.
type FaultRequest struct {
	Reason string `json:"reason"` // what is wrong, for people
}

// Retired is the answer to DELETE /v1/devices/{id} and /v1/hosts/{host}.
type Retired struct {
	Retired string `json:"retired"`
	Note    string `json:"note"`
}

// ExtendRequest is the body of POST /v1/jobs/{id}/extend, answered with the
// job.
type ExtendRequest struct {
	Submitter         string `json:"submitter"`
	MaxRuntimeSeconds int64  `json:"max_runtime_seconds"` // in all, from the start
}

// ReleaseRequest is the body of POST /v1/jobs/{id}/release, answered with the
// job: ended, or still there until its host has seen to its end.
type ReleaseRequest struct {
	Submitter string `json:"submitter"`
	// Force ends the lease of a host that is out of reach, without it; for
	// admins.
	Force bool `json:"force,omitempty"`
}

// Settings is the answer to GET and PATCH /v1/settings: the replicated
// settings by name. Switches are 0 or 1; the unit is the end of a name.
type Settings struct {
	Settings map[string]int64 `json:"settings"`
	Defaults map[string]int64 `json:"defaults"`
}

// Members is the answer to GET /v1/members: the feature level of the cluster
// and each controller's own word.
type Members struct {
	FeatureLevel uint32   `json:"feature_level"`
	Generation   uint64   `json:"generation"`
	Members      []Member `json:"members"`
}

// Member is one controller as it spoke for itself.
type Member struct {
	ID          string    `json:"id"`
	Incarnation string    `json:"incarnation"` // of its data directory
	Supports    uint32    `json:"supports"`    // highest feature level it knows
	Build       string    `json:"build"`
	Since       time.Time `json:"since"`
}

// AutomaticReturn is one return of a device to the pool without an operator.
type AutomaticReturn struct {
	At     time.Time `json:"at"`
	Reason string    `json:"reason"` // of the quarantine that it ended
}
