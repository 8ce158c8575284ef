package controller

import (
	"fmt"
	"strings"

	"rcd/api"
	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// What the reasons of agents begin with that webhooks tell apart.
var (
	watchdogReasons = []string{"max_runtime exceeded", "idle: no output for"}
	verifyReason    = "verify failed"
)

// maxWebhookReason bounds the reason in a webhook, in bytes.
const maxWebhookReason = 1024

// quarantined is what a device was last told to be out for.
type quarantined struct{ reason, detail string }

// webhookKinds finds in the events of each entry what webhooks tell. It
// remembers which devices are out, so that each quarantine is told once; that
// follows from the lease table, so every node finds the same.
type webhookKinds struct{ out map[string]quarantined }

// restored takes a state that came whole.
func (k *webhookKinds) restored(view *fsm.View) {
	k.out = map[string]quarantined{}
	for _, d := range view.Devices() {
		if d.State == model.DeviceUnhealthy {
			k.out[d.ID] = quarantined{d.Reason.String(), d.Detail}
		}
	}
}

// of returns the webhooks of an entry, with the state right after it: at most
// one for each event.
func (k *webhookKinds) of(view *fsm.View, events []command.Event) []api.OwedWebhook {
	var found []api.OwedWebhook
	for i, e := range events {
		w := api.OwedWebhook{Device: e.Device, Reason: e.Reason}
		switch e.Kind {
		case command.EventJobEnded:
			jobWebhook(&w, view.Job(e.Job))
		case command.EventHoldSilent, command.EventHoldHeard:
			sessionWebhook(&w, e.Kind, view.Job(e.Job))
		case command.EventDeviceState:
			k.deviceWebhook(&w, view.Device(e.Device))
		case command.EventDeviceRecovered:
			w.Event = wire.WebhookDeviceRecovered
		case command.EventDeviceRetired:
			delete(k.out, e.Device)
		}
		if w.Event == "" {
			continue
		}
		w.ID, w.AtMS = api.PlaceOf(view.Generation(), e.Index, i), view.NowMS()
		w.Reason = strings.ToValidUTF8(w.Reason[:min(len(w.Reason), maxWebhookReason)], "")
		found = append(found, w)
	}
	return found
}

// jobWebhook fills in what is told of a job that has ended. Jobs that a host
// no longer has when it comes back raise none, as ever.
func jobWebhook(w *api.OwedWebhook, j *model.Job) {
	if j == nil {
		return
	}
	w.Job = j.ID()
	switch {
	case j.State == model.JobLost && j.EndReason == fsm.HostSilent:
		w.Event = wire.WebhookJobLost // its devices have webhooks of their own
	case j.State == model.JobLost && j.EndReason == fsm.LeaseUnnamed:
		w.Event, w.Device = wire.WebhookLeaseExpired, j.Device()
	case j.Kind != model.KindHold && isWatchdog(j.EndReason):
		w.Event, w.Device = wire.WebhookWatchdogTrip, j.Device()
	}
}

// sessionWebhook fills in what is told of the client of a hold.
func sessionWebhook(w *api.OwedWebhook, kind command.EventKind, hold *model.Job) {
	if hold == nil {
		return
	}
	w.Job, w.Device = hold.ID(), hold.Device()
	if kind == command.EventHoldHeard {
		w.Event, w.Reason = wire.WebhookSessionHeard, "its client has been heard again"
		return
	}
	w.Event = wire.WebhookSessionSilent
	w.Reason = fmt.Sprintf("no word of its client for half of the %d s after which the hold ends", hold.SessionS)
}

func isWatchdog(reason string) bool {
	for _, begin := range watchdogReasons {
		if strings.HasPrefix(reason, begin) {
			return true
		}
	}
	return false
}

// deviceWebhook fills in what is told of a device whose state has changed; d is
// the device after the entry, nil if it is gone.
func (k *webhookKinds) deviceWebhook(w *api.OwedWebhook, d *model.Device) {
	reason := w.Reason
	if reason == "" {
		delete(k.out, w.Device)
		return
	}
	now := quarantined{reason: reason}
	if d != nil && d.Reason.String() == reason {
		now.detail = d.Detail
	}
	old := k.out[w.Device]
	if old == now {
		return
	}
	k.out[w.Device] = now
	if w.Reason = now.detail; w.Reason == "" {
		w.Reason = reason
	}
	switch reason {
	case model.ReasonWorkerLost.String():
		w.Event = wire.WebhookWorkerLost
	case model.ReasonLeaseExpired.String():
		w.Event = wire.WebhookDeviceUnhealthy
	case model.ReasonFault.String():
		if old.reason == reason { // the words of one fault more were added
			w.Reason = strings.TrimPrefix(strings.TrimPrefix(w.Reason, old.detail), "; ")
		}
		w.Event = wire.WebhookDeviceUnhealthy
		if strings.HasPrefix(w.Reason, verifyReason) {
			w.Event = wire.WebhookVerifyFailed
		}
	}
}
