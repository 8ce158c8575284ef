// Package api is the HTTP edge of a controller: the /v1 routes, who may call
// them, and the small set of calls that controllers make to each other.
//
// Every node answers. A read is served from the node's own state once that is
// known to be current; a request that changes something is carried whole to
// the leader, under one request ID, so that trying again is always safe.
//
// It must never decide anything about leases: rules live in fsm, and what a
// handler checks first is only what no state is needed for. It must never
// answer an old state as truth, nor say "failed" where it does not know.
//
// Start with Backend, then New and routes.go (every route, and what is said of
// it in the OpenAPI document), then write.go (requests that change something)
// and read.go.
package api
