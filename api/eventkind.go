package api

import (
	"encoding/json"
	"fmt"
	"time"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// topic is what an event is about: readers choose by it.
type topic uint8

const (
	kindNone topic = iota // only for answers that wait
	kindJobs
	kindDevices
	kindCluster
)

// eventKinds names each event of the state machine for readers, and says what
// it is about.
var eventKinds = map[command.EventKind]struct {
	name string
	of   topic
}{
	command.EventJobQueued:     {"job.queued", kindJobs},
	command.EventJobPlaced:     {"job.placed", kindJobs},
	command.EventJobRequeued:   {"job.requeued", kindJobs},
	command.EventJobStarted:    {"job.started", kindJobs},
	command.EventJobEnded:      {"job.ended", kindJobs},
	command.EventJobLateTruth:  {"job.late_truth", kindJobs},
	command.EventKillRequested: {"job.kill_requested", kindJobs},
	command.EventJobExtended:   {"job.extended", kindJobs},
	command.EventHoldSilent:    {"hold.session_silent", kindJobs},
	command.EventHoldHeard:     {"hold.session_heard", kindJobs},

	command.EventDeviceState:      {"device.state", kindDevices},
	command.EventDeviceRecovered:  {"device.recovered", kindDevices},
	command.EventDeviceRetired:    {"device.retired", kindDevices},
	command.EventLabels:           {"device.labels", kindDevices},
	command.EventRecoveryWithheld: {"device.recovery_withheld", kindDevices},

	command.EventEpoch:            {"cluster.epoch", kindCluster},
	command.EventSettings:         {"cluster.settings", kindCluster},
	command.EventFeature:          {"cluster.feature_level", kindCluster},
	command.EventMembers:          {"cluster.members", kindCluster},
	command.EventWriteOffWithheld: {"cluster.write_off_withheld", kindCluster},
	command.EventDiverged:         {"cluster.diverged", kindCluster},
	command.EventNoMajority:       {"cluster.no_majority", kindCluster},
	command.EventInvariant:        {"cluster.invariant", kindCluster},

	// The lease's end and the agent's registration show in devices and jobs.
	command.EventLeaseEnded:      {"", kindNone},
	command.EventAgentRegistered: {"", kindNone},
	command.EventSheets:          {"", kindNone},
	command.EventCheckpoint:      {"", kindNone},
}

// topics are the kinds as readers name them.
var topics = map[string]topic{
	wire.EventJobs: kindJobs, wire.EventDevices: kindDevices, wire.EventCluster: kindCluster,
}

// wireEvent is the message of a record.
func (r *record) wireEvent(generation uint64) (wire.Event, error) {
	kind := eventKinds[r.kind]
	out := wire.Event{
		At: time.UnixMilli(r.atMS).UTC(), ID: r.id.text(generation), Event: kind.name,
	}
	var payload any
	switch kind.of {
	case kindJobs:
		about := wire.JobEvent{JobID: model.JobID(r.job), State: r.state}
		if r.kind == command.EventJobEnded {
			about.Reason = r.reason
		}
		out.Kind, payload = wire.EventJobs, about
		out.DeviceID = r.device
	case kindDevices:
		out.Kind, out.DeviceID = wire.EventDevices, r.device
		if r.shown != nil {
			payload = []wire.DeviceView{r.shown.view()}
		}
	case kindCluster:
		out.Kind, payload = wire.EventCluster, wire.ClusterEvent{Term: r.term, Reason: r.reason}
	}
	if payload == nil {
		return out, nil
	}
	raw, err := json.Marshal(payload)
	if err != nil {
		return out, fmt.Errorf("encode event %s: %w", out.ID, err)
	}
	out.Payload = raw
	return out, nil
}
