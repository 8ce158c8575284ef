// Package proc answers what runs on this Linux host and ends what must not run any more.
//
// It identifies a process by pid and start time, because a pid alone is reused; it finds the whole tree of a job (session, descendants, whoever
// carries the job in its environment or is in its cgroup), kills it and verifies that it is empty. It must never signal a bare pid, never touch a process outside
// the tree it was given, and never take "cannot be read" for "is not there".
//
// Start with Target (what belongs to a job) and KillTree.
package proc
