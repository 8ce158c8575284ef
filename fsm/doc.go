// Package fsm is the replicated state: jobs, leases, devices, agents, requests
// and settings, changed by the commands of the log and by nothing else. Every
// controller that applies the same entries holds the same rows and the same
// digest.
//
// It must never read a clock or the environment, draw a random number, do I/O
// while applying, start a goroutine, use a float or range over a map: time
// comes with each entry, order from the rows. A refused command changes
// nothing. An entry that breaks an invariant is undone whole.
//
// Rows are immutable values in copy-on-write trees. The state after each entry
// is published as a View that readers keep as long as they like; the View
// before an entry is also what an abort goes back to.
//
// Start with Machine in machine.go, then apply.go; check.go lists the laws.
package fsm
