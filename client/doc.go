// Package client is the Go client of the /v1 API. It speaks to whichever
// controller answers: any node will do, a node that dies in the middle of a
// call is replaced by the next one, and every call that changes something
// carries a request ID of its own, so that trying again has one effect.
//
// It must never say "failed" where it does not know, never repeat a change
// under another request ID, never print, and never end a job's output before
// its end or a reported gap. How long it waits for a controller is bounded
// (Options.Patience); the caller's context always ends a call at once.
//
// Start with New, then call.go (one call: rounds over the nodes, classes of
// failure), chase.go (who is asked when) and stream.go (output that resumes).
// copy.go copies files by jobs whose scripts are in the folder copy.
package client
