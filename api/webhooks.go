package api

import (
	"cmp"
	"encoding"
	"fmt"
)

// Place is a place in the event log, across generations of a cluster. The zero
// Place is before everything.
type Place struct {
	Generation uint64
	id         eventID
}

var (
	_ encoding.TextMarshaler   = Place{}
	_ encoding.TextUnmarshaler = (*Place)(nil)
)

// PlaceOf returns the place of the event at a position of an entry.
func PlaceOf(generation, index uint64, position int) Place {
	return Place{generation, eventID{index, position}}
}

// PlaceAfter returns the place behind all events of an entry.
func PlaceAfter(generation, index uint64) Place { return Place{generation, after(index)} }

// Compare orders places as their events happened.
func (p Place) Compare(other Place) int {
	return cmp.Or(cmp.Compare(p.Generation, other.Generation), p.id.compare(other.id))
}

// Above reports whether p comes after other.
func (p Place) Above(other Place) bool { return p.Compare(other) > 0 }

// String is the ID that the event has for readers of the log.
func (p Place) String() string { return p.id.text(p.Generation) }

// MarshalText implements encoding.TextMarshaler.
func (p Place) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Place) UnmarshalText(text []byte) error {
	id, generation, ok := parseEventID(string(text), 0)
	if !ok {
		return fmt.Errorf("%q is no place in the event log", text)
	}
	*p = Place{generation, id}
	return nil
}

// WebhookLedger is what a controller knows of webhooks: all that are owed above
// Sent, up to Last. It answers GET /internal/webhooks, and a controller keeps
// it on disk; so the format only grows.
type WebhookLedger struct {
	Version int `json:"version"`
	// Known is false for a Sent that is only where this controller began to
	// keep webhooks, true for one up to which a leader has sent them.
	Known bool          `json:"known"`
	Sent  Place         `json:"sent"`
	Last  Place         `json:"last"`
	Owed  []OwedWebhook `json:"owed"` // ascending
}

// WebhookVersion is the version of a WebhookLedger, 0 that of a controller that
// sends no webhooks.
const WebhookVersion = 1

// OwedWebhook is a webhook that has not been sent, or a gap.
type OwedWebhook struct {
	ID Place `json:"id"`
	// From is, of a gap, the place above which webhooks are missing, up to ID.
	From   *Place `json:"from,omitempty"`
	Event  string `json:"event"`
	Device string `json:"device,omitempty"`
	Job    string `json:"job,omitempty"`
	Reason string `json:"reason,omitempty"`
	AtMS   int64  `json:"at_ms"` // the cluster's now, Unix milliseconds
}
