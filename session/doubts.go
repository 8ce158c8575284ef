package session

import "sync"

// Doubts knows of which hosts something told is on its way into the table, or
// may be: the rows are then no measure for what is worth an entry. A host whose
// label went there and back would have the value of the way out in the table,
// and nobody would say it again (jepsen/BUGS.md).
//
// A leader's proposals are applied in their order. So the outcome of one settles
// all before it, also those whose own outcome is not known. The zero value has
// none; all methods may be called concurrently.
type Doubts struct {
	mu    sync.Mutex
	next  uint64
	hosts map[string]onWay // those in doubt: at most the hosts that are attached, or were in this epoch
}

type onWay struct{ proposed, settled uint64 }

// Reset forgets them, at the start of an epoch: what an older one has proposed
// is applied before it, or never.
func (d *Doubts) Reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hosts = nil
}

// About reports whether what the table has of a host may change by what is on
// its way.
func (d *Doubts) About(host string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, any := d.hosts[host]
	return any
}

// Propose is called before a proposal, and settle when its outcome is known.
func (d *Doubts) Propose(host string) (settle func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hosts == nil {
		d.hosts = map[string]onWay{}
	}
	d.next++
	mine := d.next
	d.hosts[host] = onWay{mine, d.hosts[host].settled}
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		w, any := d.hosts[host]
		if w.settled = max(w.settled, mine); !any || w.settled >= w.proposed {
			delete(d.hosts, host)
			return
		}
		d.hosts[host] = w
	}
}
