// Package dev keeps a small cluster on one machine: controllers and an agent
// with simulated devices, each a process of its own, as `rcd dev` and the
// end-to-end tests use it.
//
// It must never restart a process that died: whoever kills one wants to see
// what the others do. It ends only processes that it started, that wrote a
// pid file in a data directory of this cluster, or whose command line is
// exactly that of one it started.
//
// Start with Run.
package dev
