package session

import (
	"context"
	"sync"

	"rcd/wire"
)

// Backend is the lease table and the leadership of one controller, as a Hub
// needs them. All methods may be called concurrently.
type Backend interface {
	// Role returns where leadership stands and a channel that is closed once
	// that has changed.
	Role() (Role, <-chan struct{})

	// Admit takes an agent in, on the leader: it registers the agent when its
	// instance is new, makes sure that this node still leads, waits for a
	// verdict in flight on the host, and until its own state has reached
	// hello.Index. ctx ends with the epoch. A *Refusal goes to the agent; after
	// any other error the agent comes again.
	Admit(ctx context.Context, hello wire.Hello) (Admission, error)

	// Desired returns the assigned and running jobs of a host, in any order, as
	// the epoch of a term has them. known is false when this node's table is of
	// another epoch: it was deposed and has not noticed, and what a later leader
	// placed is not its to order (jepsen/BUGS.md). The hub keeps the slice and
	// writes to nothing in it.
	Desired(host string, term uint64) (jobs []Desired, known bool)

	// Started says that the process of a job runs. It is called again until
	// Desired shows the job as running.
	Started(ctx context.Context, host, instance string, job, lease uint64) error

	// Finish hands an outcome to the lease table. acked: the outcome is in the
	// log at index, or the table has no use for it; the agent may forget it.
	// Without acked, or with an error, the agent says it again.
	Finish(ctx context.Context, host, instance string, outcome wire.Outcome) (index uint64, acked bool, err error)

	// Facts hands what a host tells of its devices to the lease table; what the
	// table has already costs no entry. A *Refusal goes to the agent, which says
	// the same no more; after any other error it says it again.
	Facts(ctx context.Context, host, instance string, facts wire.Facts) (index uint64, err error)

	// Fault takes a device out of the pool until an operator returns it. A
	// *Refusal goes to the agent, which keeps the fault for its next session;
	// after any other error it says it again.
	Fault(ctx context.Context, host, instance string, fault wire.DeviceFault) (index, lease uint64, err error)

	// WantsProof reports whether a device of the host is in quarantine for a
	// reason that another hello of it may answer.
	WantsProof(hello wire.Hello) bool

	// Prove hands a later hello of an attached host to the lease table.
	Prove(ctx context.Context, hello wire.Hello) error

	// Controllers returns every controller with its --listen address. The hub
	// does not write to it.
	Controllers() []wire.Controller

	// Index returns the index that this node has applied.
	Index() uint64
}

// Role is where leadership stands, as one controller knows.
type Role struct {
	// Leading: this node leads and has begun its epoch. Epoch, Term and
	// Generation are set, and Epoch ends when leadership is lost.
	Leading    bool
	Epoch      context.Context
	Generation uint64
	Term       uint64
	// Leader and Addr name who leads, itself included; empty while unknown.
	Leader string
	Addr   string
}

// RoleCell is a Role that can be waited for: what Backend.Role returns. The
// zero value holds the zero Role.
type RoleCell struct {
	mu      sync.Mutex // guards what follows
	role    Role
	changed chan struct{}
}

// Get returns the role and a channel that is closed at the next Set.
func (c *RoleCell) Get() (Role, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changed == nil {
		c.changed = make(chan struct{})
	}
	return c.role, c.changed
}

// Set stores the role and wakes everybody who waits.
func (c *RoleCell) Set(role Role) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.role = role
	if c.changed != nil {
		close(c.changed)
	}
	c.changed = make(chan struct{})
}

// Admission is what a welcomed agent is told.
type Admission struct {
	ClusterID string
	Index     uint64
	// Facts is the digest (wire.Facts.Digest) of what the table has of the
	// host's devices and sheets; nil makes the agent tell all of it.
	Facts []byte
}

// Refusal says why an agent is not taken in and what to do about it.
type Refusal struct {
	Code    string
	Message string
}

func (r *Refusal) Error() string { return r.Code + ": " + r.Message }

// Codes of refusals that the hub makes itself.
const (
	RefusedProtocol = "protocol_mismatch"
	RefusedHost     = "host_mismatch"
	RefusedBusy     = "overloaded"
)
