// Package witness makes double use of a simulated device show by itself: a
// lock and a log for each device, in one directory of the host.
//
// Whoever runs a job takes the locks of its devices before the first process
// of the job is there, and hands them down to it: every process of the tree
// inherits the descriptors, so the kernel keeps a lock until the last of them
// is gone, whoever was killed meanwhile and whatever rc believes. A second
// lease on the device finds the lock taken, says so in the log and does not
// run.
//
// A job inside a hold joins the hold's lease with a lock of its own beside it: the
// next lease must find all of them free.
//
// It must never wait for a lock, for a device that is free in a moment is used
// twice now, and never unlock: only the last close may end a hold. It knows
// nothing of leases but their numbers. What it cannot see is a process that
// closes descriptors it does not know.
//
// Start with Place.Take; Check judges the logs.
package witness
