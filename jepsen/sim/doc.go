// Package sim runs the lease table against everything that can go wrong around
// it, in one goroutine on a virtual clock, and replays any run from its seed.
//
// Real are the state machine (three replicas), the scheduler inside it and the
// rules of package session: Reconcile and Liveness. Fake are the log (terms,
// leaders that are deposed with entries in flight, leaders that never noticed),
// the network, the hosts with their agents, processes, labels and sheets, the
// clients, and the operator, whose word is true. A witness beside all of them
// knows the truth and tests the laws after every entry and at every process
// start. A run is a storm of faults and then a calm in which everything has to
// come to its end.
//
// Each witness is shown to fail: a Quirk breaks a fake part, or has the state
// machine do something else than an entry says (mutant.go).
//
// It must never read a clock, start a goroutine or let the order of a map
// decide anything: the same seed has to give the same run. It must not judge by
// what the code under test believes.
//
// Start with Run in sim.go, then witness.go and the step files for the laws;
// log.go, leader.go and tend.go stand for raftnode and controller, host.go for
// the agent.
package sim
