package wire

import "time"

// Webhook is the body of one webhook. The first five fields are always there.
type Webhook struct {
	Event  string    `json:"event"`  // one of the kinds below
	Device string    `json:"device"` // its ID, or ""
	Job    string    `json:"job"`    // its ID, or ""
	Reason string    `json:"reason"`
	At     time.Time `json:"at"` // the cluster's now, UTC
	// Index is the ID of the event in the event log. It only rises, but for
	// what is told again after a failover.
	Index string `json:"index"`
	// From is, of a gap, the ID above which webhooks are missing, up to Index.
	From string `json:"from,omitempty"`
}

// The kinds of webhooks.
const (
	WebhookWatchdogTrip    = "watchdog_trip"
	WebhookVerifyFailed    = "verify_failed"
	WebhookDeviceUnhealthy = "device_unhealthy"
	WebhookWorkerLost      = "worker_lost"
	WebhookJobLost         = "job_lost"
	WebhookLeaseExpired    = "lease_expired"
	WebhookDeviceRecovered = "device_recovered"
	WebhookSessionSilent   = "hold_session_silent" // the client of a hold has not been heard for half of what ends it
	WebhookSessionHeard    = "hold_session_heard"
	WebhookGap             = "webhook_gap" // webhooks between two places of the event log are lost
)

// The headers of a webhook, beside Content-Type.
const (
	// HeaderWebhookID is the same each time that a webhook is sent.
	HeaderWebhookID = "Rc-Webhook-Id"
	// HeaderWebhookTimestamp is when this try was made, in Unix seconds.
	HeaderWebhookTimestamp = "Rc-Webhook-Timestamp"
	// HeaderWebhookSignature is "sha256=" and, in hexadecimal, the HMAC-SHA256
	// of timestamp, a full stop and body. There is none without a secret.
	HeaderWebhookSignature = "Rc-Webhook-Signature"
)
