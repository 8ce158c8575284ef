// Package raftnode wraps hashicorp/raft small: one node that proposes commands,
// reads linearizably, leads with an epoch, forms its cluster by the join list
// and replaces a dead leader at once. It owns the log store, the snapshots and
// the identity of the data directory.
//
// It must never look inside a command or a result, judge an agent or a lease,
// or report a failure where the outcome is unknown. Nothing of raft's own types
// is needed to use it.
//
// Start with Open and Node in node.go; DESIGN.md says what holds and why. Then
// lead.go (epochs), combiner.go (entries), read.go (reads), form.go
// (bootstrap), force.go (forced election).
package raftnode
