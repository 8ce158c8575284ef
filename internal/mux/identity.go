package mux

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Type says what a connection carries. The values are on the wire: append
// only.
type Type byte

// The types of streams.
const (
	Raft    Type = 'R' // Raft RPCs between controllers
	Agent   Type = 'A' // an agent's control session
	Bytes   Type = 'B' // an agent's session for bulk bytes
	Forward Type = 'F' // HTTP from one controller to another
	Probe   Type = 'P' // direct questions between controllers, also before there is a cluster
)

var types = [...]Type{Raft, Agent, Bytes, Forward, Probe}

func (t Type) valid() bool {
	for _, known := range types {
		if t == known {
			return true
		}
	}
	return false
}

// Controllers reports whether both ends of such a stream are controllers, so
// that the cluster key opens it; the worker tokens open the others.
func (t Type) Controllers() bool { return t == Raft || t == Forward || t == Probe }

// sameCluster reports whether both ends must already be of one cluster.
func (t Type) sameCluster() bool { return t == Raft || t == Forward }

func (t Type) String() string {
	switch t {
	case Raft:
		return "raft"
	case Agent:
		return "agent"
	case Bytes:
		return "bytes"
	case Forward:
		return "forward"
	case Probe:
		return "probe"
	}
	return fmt.Sprintf("type-%#02x", byte(t))
}

// Identity says who speaks. A controller gives its node ID and the incarnation
// of its data directory; an agent gives its host and its process instance, and
// the cluster it was last part of ("" the first time).
type Identity struct {
	ClusterID   string // "" before there is one
	Generation  uint64
	NodeID      string
	Incarnation string
}

// maxIdentityField bounds each string of an identity, in bytes: one byte on
// the wire says its length.
const maxIdentityField = 255

var errMalformed = errors.New("malformed handshake frame")

func (id Identity) check() error {
	for _, s := range []string{id.ClusterID, id.NodeID, id.Incarnation} {
		if len(s) > maxIdentityField {
			return fmt.Errorf("identity field of %d bytes, at most %d", len(s), maxIdentityField)
		}
	}
	return nil
}

func (id Identity) append(b []byte) []byte {
	b = appendString(b, id.ClusterID)
	b = binary.BigEndian.AppendUint64(b, id.Generation)
	b = appendString(b, id.NodeID)
	return appendString(b, id.Incarnation)
}

func appendString(b []byte, s string) []byte {
	return append(append(b, byte(len(s))), s...)
}

// parser takes a frame apart; after the first short read everything is zero
// and failed is set.
type parser struct {
	rest   []byte
	failed bool
}

func (p *parser) take(n int) []byte {
	if p.failed || len(p.rest) < n {
		p.failed = true
		return make([]byte, n)
	}
	out := p.rest[:n]
	p.rest = p.rest[n:]
	return out
}

func (p *parser) byte() byte     { return p.take(1)[0] }
func (p *parser) uint64() uint64 { return binary.BigEndian.Uint64(p.take(8)) }
func (p *parser) string() string { return string(p.take(int(p.byte()))) }

func (p *parser) identity() Identity {
	return Identity{ClusterID: p.string(), Generation: p.uint64(), NodeID: p.string(), Incarnation: p.string()}
}

// end fails unless the whole frame was used and nothing was missing.
func (p *parser) end() error {
	if p.failed || len(p.rest) != 0 {
		return errMalformed
	}
	return nil
}
