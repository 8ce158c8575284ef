// Package bubble is the second ring of tests: real nodes with real Raft on real
// files in one process, inside a testing/synctest bubble, so that an hour of
// virtual time costs seconds. Its clock is virtual, but a run does not replay
// by a seed, because Raft draws its own jitter.
//
// What it exports is the network of such a bubble: in-memory connections that
// can be cut, refused and healed. Every connection is a net.Pipe, because a
// goroutine blocked on a real socket would hold the virtual clock still.
//
// One bubble at a time: never t.Parallel. Every goroutine must have ended when
// a bubble returns; close what was opened, then sleep a few virtual minutes.
//
// Start with Network; the scenarios are in the tests.
package bubble
