package model

// Bounds of the session of a hold, in seconds: of how long its client may be
// silent before the hold ends. A client speaks three times as often; below the
// least a failover would end holds, above the most it is no session.
const (
	MinSessionS = 15
	MaxSessionS = 3600
)
