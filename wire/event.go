package wire

import (
	"encoding/json"
	"time"
)

// Event is one message of GET /v1/events: what an entry of the log changed.
// Kind, At and Payload are the ancestor's; the others are ours.
type Event struct {
	Kind string    `json:"kind"` // jobs | devices | cluster | reset
	At   time.Time `json:"at"`   // the cluster's time of the entry
	// Payload is a JobEvent, a list of one DeviceView as of the entry, a
	// ClusterEvent or an EventReset, by Kind. It is absent for a device that
	// is in the fleet no more.
	Payload json.RawMessage `json:"payload,omitempty"`

	// ID is where to go on from: everything after it follows for a reader that
	// returns with it as Last-Event-ID, on any node.
	ID       string `json:"id"`
	Event    string `json:"event"`               // what happened, such as job.placed
	DeviceID string `json:"device_id,omitempty"` // that it is about
}

// The kinds of events. Readers get jobs and devices unless they ask for others.
const (
	EventJobs    = "jobs"
	EventDevices = "devices"
	EventCluster = "cluster"
	EventResets  = "reset"
)

// JobEvent is the payload of an event about a job.
type JobEvent struct {
	JobID  string `json:"job_id"`
	State  string `json:"state,omitempty"`  // after it; absent for a job that its entry also forgot
	Reason string `json:"reason,omitempty"` // why it ended
}

// ClusterEvent is the payload of an event about the controllers.
type ClusterEvent struct {
	Term   uint64 `json:"term"`
	Reason string `json:"reason,omitempty"` // the controller or the rule that it is about
}

// EventReset is the payload of the one message that says that events are
// missing: whoever keeps a picture of the cluster reads it anew, and goes on
// from the ID of the message.
type EventReset struct {
	From   string `json:"from"` // what the reader returned with
	Reason string `json:"reason"`
}
