package session

import (
	"slices"
	"time"

	"rcd/wire"
)

// avoidFor is how long an address that did not answer is not taken for the
// leader on a follower's word: followers name a dead leader until they have
// elected another, and going back and forth would miss their push. One whose
// session merely broke is worth another try at once.
const avoidFor = time.Second

// failure is what last went wrong with an address.
type failure struct {
	at     time.Time
	silent bool // it did not even answer the dial
}

// addressBook says which controller to try next. It belongs to Link.Run's
// goroutine.
type addressBook struct {
	configured []string
	known      []wire.Controller
	leader     string // to be tried first, once
	turn       int
	hops       int
	failures   map[string]failure
}

func newAddressBook(configured []string, known []wire.Controller) *addressBook {
	return &addressBook{configured: configured, known: known, failures: map[string]failure{}}
}

// addresses returns each address once: those the cluster gave, then the
// configured ones.
func (b *addressBook) addresses() []string {
	var all []string
	for _, c := range b.known {
		if c.Addr != "" && !slices.Contains(all, c.Addr) {
			all = append(all, c.Addr)
		}
	}
	for _, a := range b.configured {
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
}

// next returns the address to try now.
func (b *addressBook) next() string {
	if addr := b.leader; addr != "" {
		b.leader = ""
		return addr
	}
	all := b.addresses()
	if len(all) == 0 {
		return ""
	}
	b.turn %= len(all)
	// What failed a moment ago comes last.
	for range all {
		addr := all[b.turn]
		b.turn = (b.turn + 1) % len(all)
		if !b.failedLately(addr) {
			return addr
		}
	}
	addr := all[b.turn]
	b.turn = (b.turn + 1) % len(all)
	return addr
}

// update takes a list from the cluster and reports whether it is another one.
func (b *addressBook) update(list []wire.Controller) bool {
	if len(list) == 0 || slices.Equal(list, b.known) {
		return false
	}
	b.known = slices.Clone(list)
	return true
}

func (b *addressBook) lead(addr string) { b.leader = addr }

// follow counts a redirect in a row and returns how many there were.
func (b *addressBook) follow() int {
	b.hops++
	return b.hops
}

// welcomed ends a row of redirects.
func (b *addressBook) welcomed(addr string) {
	b.hops = 0
	delete(b.failures, addr)
}

// failed notes that a try with addr came to nothing, or that its session broke;
// silent says that it did not answer at all.
func (b *addressBook) failed(addr string, silent bool) {
	now := time.Now()
	for a, f := range b.failures {
		if now.Sub(f.at) >= avoidFor {
			delete(b.failures, a)
		}
	}
	b.failures[addr] = failure{at: now, silent: silent}
	b.hops = 0
}

func (b *addressBook) failedLately(addr string) bool {
	f, ok := b.failures[addr]
	return ok && time.Since(f.at) < avoidFor
}

// avoided reports whether a follower is not to be believed that addr leads.
func (b *addressBook) avoided(addr string) bool {
	return b.failedLately(addr) && b.failures[addr].silent
}
