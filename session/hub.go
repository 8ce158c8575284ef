package session

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"rcd/wire"
)

// What OpenStream can fail with.
var (
	// ErrNotAttached: the host has no control session with this node, or this
	// node does not lead.
	ErrNotAttached = errors.New("the host's agent is not attached to this controller")
	// ErrNoBytes: the agent was asked for a bytes session and did not open one
	// in time.
	ErrNoBytes = errors.New("the host's agent did not open a bytes session in time")
)

const (
	// maxSessions bounds the control sessions of one node: 10,000 hosts, and
	// the halves of those that are just coming back.
	maxSessions = 16_384
	// maxContacts bounds the hosts that are remembered. Past it the longest
	// unheard one without a session is forgotten.
	maxContacts = 16_384
	// maxOrdered bounds the leases remembered as ordered, see orderLog.
	maxOrdered = 65_536
)

// Hub is the controllers' side of all agent sessions of one node. All methods
// may be called concurrently.
type Hub struct {
	self    string
	backend Backend
	log     *slog.Logger

	mu         sync.Mutex // guards what follows
	hosts      map[string]*hostEntry
	epochStart time.Time
	ordered    orderLog
	sessions   int
	serial     uint64
}

// hostEntry is what the hub knows about one host.
type hostEntry struct {
	host          string
	instance      string
	control       *controlSession // welcomed; nil while detached
	bulk          *bulkSession    // nil while there is none
	bulkArrived   chan struct{}   // closed at the next bulk session; nil while nobody waits
	bulkAsked     time.Time       // when its present control session was asked for one
	attachedSince time.Time
	detachedSince time.Time
	lastHeard     time.Time
	named         []wire.ReportedJob
	wallMS        int64
}

// Protocol returns the protocol that a host's agent speaks, 0 while it is not
// attached.
func (h *Hub) Protocol(host string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.hosts[host]; e != nil && e.control != nil {
		return e.control.hello.Protocol
	}
	return 0
}

// Contact is how one host was last heard of by this node. Times carry the
// monotonic reading of this process.
type Contact struct {
	Host     string
	Instance string
	// Attached: it has a welcomed control session with this node. Only a leader
	// welcomes.
	Attached      bool
	AttachedSince time.Time // zero unless attached
	Protocol      int       // that its agent speaks; 0 unless attached
	DetachedSince time.Time // zero while attached; the epoch's start at the earliest
	LastHeard     time.Time // by this process, in whatever epoch; zero: never
	Named         []wire.ReportedJob
	WallMS        int64 // the host's wall clock at its last heartbeat, or 0
}

// NewHub returns the hub of the controller with ID self.
func NewHub(self string, backend Backend, logger *slog.Logger) *Hub {
	return &Hub{self: self, backend: backend, log: logger, hosts: map[string]*hostEntry{}, epochStart: time.Now()}
}

// Reset begins an epoch: contact counts from now at the earliest, and no order
// has been written yet. Call it before the epoch's Role is published.
func (h *Hub) Reset() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.epochStart = time.Now()
	h.ordered = orderLog{}
}

// Contacts returns every host that this node has heard, sorted by host. The
// caller owns the slice, but not the Named lists in it.
func (h *Hub) Contacts() []Contact {
	h.mu.Lock()
	defer h.mu.Unlock()
	contacts := make([]Contact, 0, len(h.hosts))
	for _, e := range h.hosts {
		c := Contact{Host: e.host, Instance: e.instance, Named: e.named, WallMS: e.wallMS, LastHeard: e.lastHeard}
		if e.control != nil {
			c.Attached, c.AttachedSince, c.Protocol = true, e.attachedSince, e.control.hello.Protocol
		} else {
			c.DetachedSince = later(e.detachedSince, h.epochStart)
		}
		contacts = append(contacts, c)
	}
	slices.SortFunc(contacts, func(a, b Contact) int { return cmp.Compare(a.Host, b.Host) })
	return contacts
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Attached reports whether a host has a welcomed session with this node.
func (h *Hub) Attached(host string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.hosts[host]
	return e != nil && e.control != nil
}

// Ordered reports whether the start of a job under a lease may have been
// written to any session since Reset. It errs on the side of true. Who acts on
// false has to keep Backend.Admit waiting meanwhile and look again, because an
// attached host may get the order at any moment.
func (h *Hub) Ordered(job, lease uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ordered.has(job, lease)
}

// Nudge makes the session of a host reconcile: something about its jobs has
// changed. It never blocks.
func (h *Hub) Nudge(host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.hosts[host]; e != nil && e.control != nil {
		e.control.wake()
	}
}

// NudgeAll is Nudge for every attached host.
func (h *Hub) NudgeAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.hosts {
		if e.control != nil {
			e.control.wake()
		}
	}
}

// Drop ends the session of an agent process that the lease table does not know
// any more: with its next hello it registers again. It never blocks.
func (h *Hub) Drop(host, instance string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.hosts[host]; e != nil && e.control != nil && e.instance == instance {
		e.control.cancel(errUnregistered)
	}
}

// begin counts a control session in and gives it its serial number, by which
// the newer of two is known.
func (h *Hub) begin() (uint64, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.sessions >= maxSessions {
		return 0, false
	}
	h.sessions++
	h.serial++
	return h.serial, true
}

func (h *Hub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.sessions--
}

// heard notes contact. hb is nil for a hello.
func (h *Hub) heard(s *controlSession, hb *wire.Heartbeat) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.entry(s.hello.Host)
	// A late message of a replaced process counts for nobody.
	if e.control != nil && e.control != s && e.instance != s.hello.Instance {
		return
	}
	e.instance = s.hello.Instance
	e.lastHeard = time.Now()
	if hb != nil {
		e.named, e.wallMS = hb.Jobs, hb.WallMS
	} else {
		e.named = s.hello.Jobs
	}
}

// entry returns the host's entry, made if need be. The caller holds mu.
func (h *Hub) entry(host string) *hostEntry {
	if e := h.hosts[host]; e != nil {
		return e
	}
	if len(h.hosts) >= maxContacts {
		h.forgetOne()
	}
	e := &hostEntry{host: host, detachedSince: time.Now()}
	h.hosts[host] = e
	return e
}

func (h *Hub) forgetOne() {
	var oldest *hostEntry
	for _, e := range h.hosts {
		if e.control == nil && e.bulk == nil && (oldest == nil || e.lastHeard.Before(oldest.lastHeard)) {
			oldest = e
		}
	}
	if oldest != nil {
		delete(h.hosts, oldest.host)
	}
}

// attach makes s the session of its host and ends the one before. It fails when
// a newer one is attached already.
func (h *Hub) attach(s *controlSession) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	e := h.entry(s.hello.Host)
	if e.control != nil && e.control.serial > s.serial {
		return false
	}
	if e.control != nil {
		e.control.cancel(errReplaced)
	}
	if e.bulk != nil && e.bulk.instance != s.hello.Instance {
		e.bulk.cancel(errReplaced)
	}
	e.control, e.instance, e.attachedSince, e.lastHeard = s, s.hello.Instance, time.Now(), time.Now()
	e.bulkAsked = time.Time{}
	return true
}

func (h *Hub) detach(s *controlSession) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e := h.hosts[s.hello.Host]; e != nil && e.control == s {
		e.control, e.detachedSince = nil, time.Now()
	}
}

func (h *Hub) markOrdered(job, lease uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ordered.add(job, lease)
}

func (h *Hub) forgetOrdered(job, lease uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.ordered.leases, jobKey{job, lease})
}

// jobKey names a job under a lease.
type jobKey struct{ job, lease uint64 }

// orderLog remembers which starts were written in this epoch. Past its bound it
// forgets them all and takes every lease up to the highest for ordered: a job
// wrongly taken for ordered waits for a sweep, one wrongly taken for unordered
// could run twice.
type orderLog struct {
	leases map[jobKey]struct{}
	floor  uint64
}

func (o *orderLog) has(job, lease uint64) bool {
	_, ok := o.leases[jobKey{job, lease}]
	return ok || lease <= o.floor
}

func (o *orderLog) add(job, lease uint64) {
	if len(o.leases) >= maxOrdered {
		for k := range o.leases {
			o.floor = max(o.floor, k.lease)
		}
		o.leases = nil
	}
	if o.leases == nil {
		o.leases = map[jobKey]struct{}{}
	}
	o.leases[jobKey{job, lease}] = struct{}{}
}

// hostAllowed reports whether a connection that was authenticated for peerHost
// ("" for any) may speak for host.
func hostAllowed(peerHost, host string) bool {
	return host != "" && (peerHost == "" || peerHost == host)
}

// errUnregistered ends a session of which the lease table knows nothing.
var errUnregistered = errors.New("the lease table does not know this agent process any more")

// errReplaced ends a session that a newer one of the same host took over.
var errReplaced = errors.New("replaced by a newer session of the host")
