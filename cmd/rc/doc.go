// Command rc submits jobs to leased devices and looks at the fleet. It is thin:
// everything that can go wrong on the way to a controller is the client
// package's; here are flags, words and exit codes.
//
// Data goes to stdout, talk to stderr. It must never print a job's output
// twice or out of order, never take a lost controller for a failed job, and
// never leave a job behind without saying how to look at it and how to end it.
//
// Start with main.go; every verb has a file of its name, and run.go is the one
// that matters.
package main
