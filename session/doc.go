// Package session is the protocol between agents and controllers: how an agent
// finds the leader and keeps a control session to it, how the leader says what
// is to run, and how bulk bytes get a session of their own.
//
// The controllers' side is Hub, the agents' side is Link. What both obey is the
// pure function Reconcile: first contact, reconnect and failover take the same
// path through it, so none of them has rules of its own.
//
// It must never decide what becomes of a job, a lease or a device (that is the
// lease table, through Backend), wait for a proposal while it handles a
// heartbeat, or judge anybody by silence: it only reports contact.
//
// Each connection carries one yamux session. Its keepalive is off; the
// heartbeat on the control stream is the one detector of a dead peer, and a
// write that times out ends the whole session, because yamux v0.1.2 leaves it
// half alive otherwise.
//
// Start with reconcile.go, then hub_control.go and link.go.
package session
