// Command rcd is the daemon side of rc: a controller, an agent, a development
// cluster, and the per-job shim that agents start.
//
// Each verb stands in a file of its own and must hold nothing but flags and
// the call that does the work. Start with main.go.
package main
