// Package tidy holds the house rules that a machine can check: which package
// may import which, who owns a third-party import, how long a file may be, and
// what the replicated state machine must not touch. Its test runs them over the
// whole module.
//
// It must never judge what it cannot see in the source, and never carry a list
// of exceptions by file: a rule that has to be broken is changed for everybody.
//
// Start with the tables in rules.go; check.go runs the rules over a module.
package tidy
