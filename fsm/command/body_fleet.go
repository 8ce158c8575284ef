package command

import "rcd/model"

// DeviceLabels is the whole set of labels of one source for one device.
type DeviceLabels struct {
	Name   string `cbor:"1,keyasint"` // of the device on its host
	Labels []KV   `cbor:"2,keyasint"`
}

// LabelsReplace makes the labels of one source exactly these, for the devices
// named. Devices that it does not name keep theirs.
type LabelsReplace struct {
	Host     string         `cbor:"1,keyasint"`
	Instance string         `cbor:"2,keyasint"`
	Source   model.Source   `cbor:"3,keyasint"`
	Sets     []DeviceLabels `cbor:"4,keyasint"`
}

// SheetText is one usage sheet.
type SheetText struct {
	Name string `cbor:"1,keyasint"` // device on its host; "" is the host's own
	Body string `cbor:"2,keyasint"` // empty: the sheet is gone
}

// SheetPut replaces usage sheets of a host and its devices, all or none.
type SheetPut struct {
	Host     string      `cbor:"1,keyasint"`
	Instance string      `cbor:"2,keyasint"`
	Sheets   []SheetText `cbor:"3,keyasint"`
}

// DeviceFault says that a device is unfit to be given away.
type DeviceFault struct {
	Device string `cbor:"1,keyasint"` // ID
	// Instance of the agent that reports it, or "" for an operator's word.
	Instance string `cbor:"2,keyasint"`
	Detail   string `cbor:"3,keyasint"` // for people, never matched on
}

// DeviceRetire takes a device out of the fleet, or a host with all its
// devices. Exactly one of the two is set.
type DeviceRetire struct {
	Device string `cbor:"1,keyasint"` // ID
	Host   string `cbor:"2,keyasint"`
}

// Recover is the word of a known agent process about what can still hold its
// quarantined devices: a later hello than its registration.
type Recover struct {
	Host     string `cbor:"1,keyasint"`
	Instance string `cbor:"2,keyasint"`
	// Jobs are those it supervises, ended ones with an unacked outcome
	// included: their trees were left out of the search.
	Jobs  []JobRef `cbor:"3,keyasint"`
	Proof Proof    `cbor:"4,keyasint"`
	// RequireManualClear: the host wants no automatic return of its devices.
	RequireManualClear bool `cbor:"5,keyasint"`
}
