// Package agent is the device-host edge: the process that declares a host's
// devices, starts jobs on them, and tells the leader how they end.
//
// It must never start a lease twice or out of order (the fence is on disk
// before the start), forget an outcome that nobody has acked, end a job because
// it stops itself, or let anything of its own environment reach a job. It
// decides nothing about leases: it obeys orders whose fence holds, and says
// what it sees.
//
// Jobs run under package agent/shim and outlive this process. What has to
// outlive it as well is on disk: the fence (fence.go), the cluster's facts (state.go),
// and one directory for each job.
//
// Several jobs of one lease, which is a hold and those inside it, are in inside.go.
//
// The operator's own scripts are in hooks.go (around the use of a device),
// verify.go (after each job) and script.go (how one is run).
//
// What the host tells of its devices is in facts.go (what is held, and when it
// is told), round.go, source.go and sheets.go. Which GPU a device is, and
// whether it is there, is in gpus.go (what is done about it) and bind.go (how it
// is judged, which is all pure).
//
// What its GPUs complain of, and what is left on them after a job, is in
// gpu_health.go, xid.go and gpu_verify.go.
//
// How a host is emptied is in drain_book.go (what lasts), drain_verbs.go (the
// agent's side) and drain_host.go (rcd agent drain). What a running agent is
// asked goes over control.go; what it can take from a changed configuration is
// in reload.go.
//
// Start with agent.go, then handler.go (what the leader may order) and
// start.go (how a job begins).
package agent
