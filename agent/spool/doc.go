// Package spool keeps the output of one job on the device host.
//
// All output of a job stands in one offset space, in the order in which it arrived; each record is tagged with its stream. One Writer, in the
// job's shim, appends; any number of Readers, in other processes, follow it or read it long after the Writer is gone. The Writer must never hold
// up the job: what the disk does not take and what the bound does not allow is counted, digested and becomes a Gap. A Reader must never skip a byte
// silently: it delivers each offset exactly once, as data or inside a Gap.
//
// On disk a spool is a directory of segment files, each named by the offset of its first byte, and a file of gaps. Segments are checked by CRC
// record by record, so that a tail torn by a crash is seen and cut. The formats stand in format.go and are frozen by golden files.
//
// Start with Writer.Append and Reader.Next.
package spool
