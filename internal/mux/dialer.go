package mux

import (
	"context"
	"fmt"
	"net"
	"time"
)

// Key is a shared secret and the name it goes by in logs.
type Key struct {
	Name   string
	Secret []byte
}

// Dialer opens authenticated connections. Its methods may be called
// concurrently; the fields must not change after the first call.
type Dialer struct {
	// Self says who dials, at each dial.
	Self func() Identity
	// Key opens the connection. An empty one is refused (ErrNoKey).
	Key Key
	// DialContext connects; nil means TCP.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	// Check may refuse the listener's identity before the key is proved; nil
	// accepts. Cluster ID and generation of Raft and Forward streams are
	// checked all the same.
	Check func(kind Type, peer Identity) error
}

// Dial returns a connection that carries kind. Refusals wrap a sentinel of
// this package; a refused or failed connect is wrapped, so that
// errors.Is(err, syscall.ECONNREFUSED) works. ctx bounds the connect, and the
// handshake together with its own 3 s; it does not bound the connection.
func (d *Dialer) Dial(ctx context.Context, address string, kind Type) (*Conn, error) {
	if len(d.Key.Secret) == 0 {
		return nil, fmt.Errorf("dial %s at %s: %w", kind, address, ErrNoKey)
	}
	self := d.Self()
	if err := self.check(); err != nil {
		return nil, fmt.Errorf("dial %s at %s: %w", kind, address, err)
	}
	raw, err := d.Connect(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("dial %s at %s: %w", kind, address, err)
	}
	peer, err := d.shake(ctx, raw, kind, self)
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("dial %s at %s: %w", kind, address, err)
	}
	return &Conn{Conn: raw, kind: kind, peer: peer, keyName: d.Key.Name}, nil
}

// Connect returns a bare connection, without the handshake: enough to learn
// whether anything listens there.
func (d *Dialer) Connect(ctx context.Context, address string) (net.Conn, error) {
	if d.DialContext != nil {
		return d.DialContext(ctx, "tcp", address)
	}
	var plain net.Dialer
	return plain.DialContext(ctx, "tcp", address)
}

func (d *Dialer) shake(ctx context.Context, raw net.Conn, kind Type, self Identity) (Identity, error) {
	deadline := time.Now().Add(handshakeTimeout)
	if limit, ok := ctx.Deadline(); ok && limit.Before(deadline) {
		deadline = limit
	}
	if err := raw.SetDeadline(deadline); err != nil {
		return Identity{}, err
	}
	stop := context.AfterFunc(ctx, func() { raw.Close() })
	peer, err := dialerHandshake(raw, kind, self, d.Key.Secret, func(peer Identity) error {
		if r := mismatch(kind, self, peer); r != nil {
			return r
		}
		if d.Check != nil {
			if err := d.Check(kind, peer); err != nil {
				return &refusal{statusIdentityMismatch, err.Error()}
			}
		}
		return nil
	})
	if !stop() {
		return Identity{}, fmt.Errorf("handshake: %w", ctx.Err())
	}
	if err != nil {
		return Identity{}, err
	}
	return peer, raw.SetDeadline(time.Time{})
}

// mismatch returns why dialer and listener may not speak, or nil. Agents carry
// the cluster they were last part of, or none: only another cluster is
// refused, and a generation above the listener's, because then the listener is
// the one that missed a restore.
func mismatch(kind Type, dialer, listener Identity) *refusal {
	same := dialer.ClusterID == listener.ClusterID
	switch {
	case kind.sameCluster():
		if same && dialer.ClusterID != "" && dialer.Generation == listener.Generation {
			return nil
		}
	case kind == Agent || kind == Bytes:
		if dialer.ClusterID == "" || listener.ClusterID == "" || same && dialer.Generation <= listener.Generation {
			return nil
		}
	default:
		return nil
	}
	return &refusal{statusIdentityMismatch, fmt.Sprintf("%s is in %s, %s in %s",
		name(dialer), cluster(dialer), name(listener), cluster(listener))}
}

func name(id Identity) string {
	if id.NodeID == "" {
		return "one side"
	}
	return id.NodeID
}

func cluster(id Identity) string {
	if id.ClusterID == "" {
		return "no cluster"
	}
	return fmt.Sprintf("cluster %s generation %d", id.ClusterID, id.Generation)
}
