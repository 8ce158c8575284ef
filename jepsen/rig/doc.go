// Package rig is a cluster of real controllers in one process, with hosts that
// only pretend to run jobs, for tests: over loopback, or over in-memory pipes
// inside a synctest bubble.
//
// It must never start a real process. Start with Cluster and Host.
package rig
