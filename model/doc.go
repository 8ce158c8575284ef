// Package model holds the rows of the lease table: jobs, leases, devices,
// agents, settings and the words (states, reasons) that they use.
//
// It must never import anything of the project, read a clock or do I/O. Rows
// are immutable once they are in a table: to change one, copy it, change the
// copy, put the copy in. Slices and maps inside a row are never written after
// the row was put.
//
// The integer keys in the cbor tags are the persisted format: they are
// append-only and frozen by the golden files of fsm.
//
// Start with Job and Lease.
package model
