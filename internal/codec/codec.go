package codec

import (
	"bytes"
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// Bounds on what one value may contain. Together with the size limit of a
// command (1 MiB) they keep a hostile or damaged entry from costing more than
// its own length. The deepest value we write, an array submit with its
// selectors, nests 8 levels.
const (
	MaxNesting       = 16
	MaxArrayElements = 1 << 17
	MaxMapPairs      = 1 << 16
)

// RawMessage is one encoded value, kept as it came. Decoding into it copies;
// its validity has been checked, its content has not.
type RawMessage = cbor.RawMessage

var (
	encoder = newEncoder()
	decoder = newDecoder()
)

func newEncoder() cbor.UserBufferEncMode {
	opts := cbor.CoreDetEncOptions()
	// A nil and an empty container are equal values to everybody who reads a
	// row; were they different bytes, a snapshot restore would change digests.
	opts.NilContainers = cbor.NilContainerAsEmpty
	opts.IndefLength = cbor.IndefLengthForbidden
	opts.TagsMd = cbor.TagsForbidden
	opts.NaNConvert = cbor.NaNConvertReject
	opts.InfConvert = cbor.InfConvertReject
	mode, err := opts.UserBufferEncMode()
	if err != nil {
		panic(fmt.Sprintf("codec: encoding options: %v", err))
	}
	return mode
}

func newDecoder() cbor.DecMode {
	const undefined = 23 // we never write it, and it would decode like null
	simple, err := cbor.NewSimpleValueRegistryFromDefaults(cbor.WithRejectedSimpleValue(undefined))
	if err != nil {
		panic(fmt.Sprintf("codec: simple values: %v", err))
	}
	mode, err := cbor.DecOptions{
		DupMapKey:         cbor.DupMapKeyEnforcedAPF,
		MaxNestedLevels:   MaxNesting,
		MaxArrayElements:  MaxArrayElements,
		MaxMapPairs:       MaxMapPairs,
		IndefLength:       cbor.IndefLengthForbidden,
		TagsMd:            cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		UTF8:              cbor.UTF8RejectInvalid,
		// The library's default also takes a key that differs in case.
		FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
		SimpleValues:      simple,
		NaN:               cbor.NaNDecodeForbidden,
		Inf:               cbor.InfDecodeForbidden,
	}.DecMode()
	if err != nil {
		panic(fmt.Sprintf("codec: decoding options: %v", err))
	}
	return mode
}

// Marshal returns v in core deterministic CBOR: equal values give equal bytes,
// map keys are sorted, and a nil slice or map is written like an empty one.
// The caller owns the result. It fails for types CBOR has no form for, for
// non-finite floats and for tagged values; it does not check the bounds above.
func Marshal(v any) ([]byte, error) {
	return encoder.Marshal(v)
}

// MustMarshal is Marshal for values whose type is known to encode. A failure
// is a programming error and panics.
func MustMarshal(v any) []byte {
	data, err := encoder.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("codec: value of type %T does not encode: %v", v, err))
	}
	return data
}

// MustMarshalTo is MustMarshal into buf, behind what it holds, for callers that
// encode row after row and keep none of the bytes.
func MustMarshalTo(buf *bytes.Buffer, v any) {
	if err := encoder.MarshalToBuffer(v, buf); err != nil {
		panic(fmt.Sprintf("codec: value of type %T does not encode: %v", v, err))
	}
}

// Unmarshal decodes exactly one value from data into v, a non-nil pointer,
// and refuses whatever the package comment names. v must be fresh: fields that
// data does not mention keep what they held. After an error v may be partly
// written and must not be used. Nothing in v refers to data afterwards.
func Unmarshal(data []byte, v any) error {
	return decoder.Unmarshal(data, v)
}
