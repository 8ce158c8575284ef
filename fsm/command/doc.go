// Package command is the vocabulary of the replicated log: what may be asked
// of the lease table, how it is encoded, and what comes back.
//
// An entry of the log carries one or more commands, the term its proposer
// believed in and the proposer's stamp. Kinds, fields and codes are
// append-only; golden files freeze every encoding. The package holds no state
// and must never read a clock.
//
// Start with Entry, then the bodies in body.go, then Result.
package command
