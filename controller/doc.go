// Package controller assembles one controller process: the replicated lease
// table, the agents' sessions, the HTTP edge, and the duties of a leader.
//
// It joins packages of lower floors by the interfaces that those declare. It
// must hold no rule of the lease table (those are in fsm) and draw no
// conclusion of its own: it collects evidence, proposes, and acts on what was
// committed.
//
// Start with New in controller.go, then lead.go for what only a leader does.
package controller
