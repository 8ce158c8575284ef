// Package shim runs one job under a small process of its own, `rcd shim`, so that the job outlives the agent.
//
// The shim owns the job's process tree, its pipes, its watchdogs, its spool and its exit status; it goes on for weeks without an agent, and at the
// end leaves a durable result. The agent's side starts it, finds it again after a restart, follows it, kills through it, and steps in when it
// died. Both sides must never start a job twice, never announce a result that is not on disk, never report an end while a process of the job can
// still be found, and never let a byte of a finished job's output out of the count.
//
// Agent and shim may be of different releases: files and messages are versioned, and golden files freeze them.
//
// Start with DESIGN.md; then Start, Adopt and Handle for the agent's side, Main and supervisor for the shim's.
package shim
