package wire

// HeartbeatRequest is the body of POST /v1/jobs/{id}/heartbeat, which may be
// left out: then the token says whose the hold is.
type HeartbeatRequest struct {
	Submitter string `json:"submitter,omitempty"`
}

// HeartbeatAnswer says how a hold stands whose client has just been heard.
type HeartbeatAnswer struct {
	State         string `json:"state"`
	KillRequested bool   `json:"kill_requested"` // it is about to end
	// SessionSeconds is how long the client may be silent; a third of it is a
	// good time between two heartbeats.
	SessionSeconds int64 `json:"session_seconds"`
}
