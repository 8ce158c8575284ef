package model

// Settings are the replicated bounds and policies. Durations are milliseconds
// of uptime unless the name says otherwise. Bounds count rows or bytes.
type Settings struct {
	AgingMS            int64 `cbor:"1,keyasint"`  // head start per priority level; 0: strict priority
	HoldoffMS          int64 `cbor:"2,keyasint"`  // at least MinHoldoffMS
	UnknownAfterMS     int64 `cbor:"3,keyasint"`  // detached this long: unknown
	UnknownSilenceMS   int64 `cbor:"4,keyasint"`  // silent this long without a detachment: unknown
	WriteOffAfterMS    int64 `cbor:"5,keyasint"`  // silent this long: unhealthy, worker_lost
	LeaseUnstartedMS   int64 `cbor:"6,keyasint"`  // attached agent does not name an unstarted lease
	LeaseUnnamedMS     int64 `cbor:"7,keyasint"`  // attached agent does not name a started lease
	RetainDisconnected bool  `cbor:"8,keyasint"`  // retain_disconnected_jobs
	FlapLimit          int64 `cbor:"9,keyasint"`  // automatic returns inside the window
	FlapWindowMS       int64 `cbor:"10,keyasint"` //
	NoServeGraceMS     int64 `cbor:"11,keyasint"` // a queued job that no device can serve

	MaxQueued        int64 `cbor:"12,keyasint"`
	MaxQueuedBytes   int64 `cbor:"13,keyasint"`
	MaxSelectors     int64 `cbor:"14,keyasint"` // distinct, among queued jobs
	MaxEnvBytes      int64 `cbor:"15,keyasint"`
	MaxLabels        int64 `cbor:"16,keyasint"` // per device and source
	MaxFinished      int64 `cbor:"17,keyasint"`
	FinishedAgeMS    int64 `cbor:"18,keyasint"`
	MaxRequests      int64 `cbor:"19,keyasint"`
	RequestMinAgeMS  int64 `cbor:"20,keyasint"` // none younger is evicted
	MaxArray         int64 `cbor:"21,keyasint"`
	MaxDevicesInHost int64 `cbor:"22,keyasint"`
	MaxHosts         int64 `cbor:"23,keyasint"`

	MaxSheetBytes  int64 `cbor:"24,keyasint"` // one usage sheet
	MaxSheetsBytes int64 `cbor:"25,keyasint"` // all of one host

	// A sweep that would write off more than MassFloor agents and more than
	// MassPercent of those heard in the last hour is withheld.
	MassFloor   int64 `cbor:"26,keyasint"`
	MassPercent int64 `cbor:"27,keyasint"`
	// MassPermit is an operator's word that the next such sweep may pass.
	MassPermit bool `cbor:"28,keyasint"`

	// MaxFinishedBytes bounds what the finished jobs that are kept take.
	MaxFinishedBytes int64 `cbor:"29,keyasint"`
}

// MinHoldoffMS is the smallest holdoff that may be set: agents need up to ten
// seconds to come back to a new leader.
const MinHoldoffMS = 10_000

const (
	second = int64(1000)
	minute = 60 * second
	hour   = 60 * minute
)

// DefaultSettings returns the settings of a fresh cluster.
func DefaultSettings() Settings {
	return Settings{
		AgingMS:          30 * minute,
		HoldoffMS:        30 * second,
		UnknownAfterMS:   3 * second,
		UnknownSilenceMS: 30 * second,
		WriteOffAfterMS:  5 * minute,
		LeaseUnstartedMS: 5 * minute,
		LeaseUnnamedMS:   15 * minute,
		FlapLimit:        3,
		FlapWindowMS:     hour,
		NoServeGraceMS:   10 * minute,
		MaxQueued:        100_000,
		MaxQueuedBytes:   512 << 20,
		MaxSelectors:     1_000,
		MaxEnvBytes:      64 << 10,
		MaxLabels:        256,
		MaxFinished:      200_000,
		FinishedAgeMS:    90 * 24 * hour,
		MaxRequests:      200_000,
		RequestMinAgeMS:  15 * minute,
		MaxArray:         1_000,
		MaxDevicesInHost: 256,
		MaxHosts:         10_000,
		MaxSheetBytes:    64 << 10,
		MaxSheetsBytes:   64 << 10,
		MassFloor:        3,
		MassPercent:      30,
		MaxFinishedBytes: 1 << 30,
	}
}
