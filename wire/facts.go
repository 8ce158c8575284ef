package wire

import (
	"cmp"
	"crypto/sha256"
	"slices"

	"rcd/internal/codec"
)

// Facts is what a host tells of its devices beyond their registration. An agent
// sends it after a welcome, with what the leader has not confirmed yet.
// Protocol 2.
type Facts struct {
	Seq uint64 `cbor:"1,keyasint"` // of this session, from 1; answered by a FactsAck
	// Labels are the whole detected sets of the devices named, others keep
	// theirs.
	Labels []DeviceFacts `cbor:"2,keyasint"`
	// Sheets are whole, too; an empty one is gone.
	Sheets []SheetText `cbor:"3,keyasint"`
}

// DeviceFacts is the set of labels that one device was detected to have.
type DeviceFacts struct {
	Name     string    `cbor:"1,keyasint"`
	Detected []LabelKV `cbor:"2,keyasint"` // sorted by key
}

// SheetText is one usage sheet.
type SheetText struct {
	Name string `cbor:"1,keyasint"` // of the device; "" is the host's own
	Body string `cbor:"2,keyasint"`
}

// FactsAck answers Facts once they are in the log at Index, or in the table
// already. With a Code the table does not take them: the agent tells a person,
// and says them again when they have changed.
type FactsAck struct {
	Seq     uint64 `cbor:"1,keyasint"`
	Index   uint64 `cbor:"2,keyasint"`
	Code    string `cbor:"3,keyasint"`
	Message string `cbor:"4,keyasint"`
}

// DeviceFault says that a device must not be given away before a person has
// looked at it, although no job is to blame. The agent says it until it is
// acked. Protocol 2.
type DeviceFault struct {
	Device string `cbor:"1,keyasint"` // name on the host
	Detail string `cbor:"2,keyasint"` // for people; at most 4 KiB
}

// FaultAck says that a fault is in the log at Index, or in the table already.
// With a Code the table does not take it, and the agent says it again in its
// next session.
type FaultAck struct {
	DeviceFault
	Index   uint64 `cbor:"3,keyasint"`
	Code    string `cbor:"4,keyasint"`
	Message string `cbor:"5,keyasint"`
	// Lease is the highest lease number that the device had been given when the
	// fault was in the log: a later one was placed after an operator has
	// returned the device. Protocol 4.
	Lease uint64 `cbor:"6,keyasint,omitempty"`
}

// Digest returns a digest of labels and sheets, the same whatever their order;
// what is empty does not count. Two sides with the same digest hold the same.
func (f Facts) Digest() []byte {
	var known Facts
	for _, d := range f.Labels {
		if len(d.Detected) > 0 {
			d.Detected = slices.Clone(d.Detected)
			slices.SortFunc(d.Detected, func(a, b LabelKV) int { return cmp.Compare(a.Key, b.Key) })
			known.Labels = append(known.Labels, d)
		}
	}
	for _, s := range f.Sheets {
		if s.Body != "" {
			known.Sheets = append(known.Sheets, s)
		}
	}
	slices.SortFunc(known.Labels, func(a, b DeviceFacts) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(known.Sheets, func(a, b SheetText) int { return cmp.Compare(a.Name, b.Name) })
	sum := sha256.Sum256(codec.MustMarshal(known))
	return sum[:]
}
