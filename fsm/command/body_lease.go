package command

// Schedule makes a pass over the whole queue, whatever has changed. By the
// laws it finds nothing to do; it is there for an operator who doubts that.
type Schedule struct{}

// LeaseAllocate gives a ready device to a job at once, past the queue: an
// operator's or a test's word. The job is pinned.
type LeaseAllocate struct {
	Job JobSpec `cbor:"1,keyasint"`
}

// LeaseRelease gives a lease back before its end.
type LeaseRelease struct {
	Job   uint64 `cbor:"1,keyasint"`
	By    string `cbor:"2,keyasint"` // submitter who asks
	Admin bool   `cbor:"3,keyasint"` // the caller may release anybody's
	// Detached: the leader has no contact with the job's host.
	Detached bool `cbor:"4,keyasint"`
	// Force ends the lease of a host that is out of reach, without it. Only
	// with Admin.
	Force bool `cbor:"5,keyasint"`
}

// LeaseExtend lengthens the runtime of a job.
type LeaseExtend struct {
	Job         uint64 `cbor:"1,keyasint"`
	By          string `cbor:"2,keyasint"`
	Admin       bool   `cbor:"3,keyasint"`
	MaxRuntimeS int64  `cbor:"4,keyasint"` // in all, from the start
}
