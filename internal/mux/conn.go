package mux

import (
	"errors"
	"net"
)

// ErrNoCloseWrite: the connection below cannot be closed for writing alone.
var ErrNoCloseWrite = errors.New("connection has no half close")

// Conn is an authenticated connection. The handshake has used exactly its own
// bytes; everything read and written is the stream's.
type Conn struct {
	net.Conn
	kind    Type
	peer    Identity
	keyName string
}

// Type returns what the connection carries.
func (c *Conn) Type() Type { return c.kind }

// Peer returns who is at the other end, as it said at the handshake.
func (c *Conn) Peer() Identity { return c.peer }

// KeyName returns the name of the key that opened the connection: on the
// listener's side the one that matched, on the dialer's side its own.
func (c *Conn) KeyName() string { return c.keyName }

// CloseWrite tells the peer that nothing more will come, where the connection
// below can (TCP and TLS); otherwise it does nothing and returns
// ErrNoCloseWrite.
func (c *Conn) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return ErrNoCloseWrite
	}
	return half.CloseWrite()
}
