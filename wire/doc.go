// Package wire holds what travels between the parts: the /v1 JSON types
// (api.go, raft.go), the messages between agents and controllers (agent.go)
// and the frames of byte streams (frame.go).
//
// It holds shapes, codes and bounds, and must never hold behaviour beyond
// encoding them. JSON names are those of the ancestor's API; CBOR keys are
// append-only.
package wire
