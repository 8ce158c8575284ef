package controller

import (
	"slices"
	"sync"

	"rcd/api"
	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/wire"
)

// What an outbox keeps. Webhooks are rare and short; this is days of a cluster
// in which something breaks each minute, and fits into one answer to a peer.
const (
	maxOwed      = 4096
	maxOwedBytes = 1 << 20
	owedBytes    = 128 // of a webhook without its texts
)

// outbox is the webhooks that this node knows to be owed: above sent it has all
// of them up to last, or a gap where it has not. Every node of a cluster keeps
// one while it applies entries, so whoever leads next goes on.
//
// applied and restored are for the state machine's goroutine and never block;
// the other methods may be called concurrently.
type outbox struct {
	mu    sync.Mutex // guards what follows
	kinds webhookKinds
	// blank is true until it is known where this node begins: the first time
	// that it is started with webhooks on.
	blank  bool
	ledger api.WebhookLedger
	bytes  int
	lead   bool          // this node sends, so it says up to where that was done
	moved  chan struct{} // closed at the next change of what is owed; nil while nobody waits
	edits  uint64        // counts such changes
}

// newOutbox returns one that goes on with what was kept, or with nil one that
// begins.
func newOutbox(kept *api.WebhookLedger) *outbox {
	o := &outbox{kinds: webhookKinds{out: map[string]quarantined{}}, blank: kept == nil}
	o.ledger.Version = api.WebhookVersion
	if kept != nil {
		o.ledger = *kept
		for _, w := range kept.Owed {
			o.bytes += sizeOf(w)
		}
	}
	return o
}

func sizeOf(w api.OwedWebhook) int {
	return owedBytes + len(w.Device) + len(w.Job) + len(w.Reason)
}

// begin makes a blank outbox owe nothing up to a place: what happened before
// webhooks were turned on.
func (o *outbox) begin(at api.Place) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.blank {
		return
	}
	o.blank = false
	o.forget(at)
	o.announce()
}

// applied takes the events of an entry, with the state right after it.
func (o *outbox) applied(view *fsm.View, events []command.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.take(o.kinds.of(view, events), api.PlaceAfter(view.Generation(), view.Index()))
}

// take adds the webhooks of an entry and moves behind it.
func (o *outbox) take(found []api.OwedWebhook, end api.Place) {
	known := o.ledger.Last
	for _, w := range found {
		// After a start the log is played again, from before what was kept.
		if w.ID.Above(known) && w.ID.Above(o.ledger.Sent) {
			o.ledger.Owed = append(o.ledger.Owed, w)
			o.bytes += sizeOf(w)
			o.announce()
		}
	}
	if end.Above(known) {
		o.ledger.Last = end
	}
	o.shrink()
}

// restored takes a state that came whole: what led to it is a gap, unless it is
// known from before.
func (o *outbox) restored(view *fsm.View) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.kinds.restored(view)
	o.skip(api.PlaceAfter(view.Generation(), view.Index()), view.NowMS())
}

// skip moves to a place without what led to it.
func (o *outbox) skip(at api.Place, nowMS int64) {
	known := o.ledger.Last
	if !at.Above(known) {
		return
	}
	o.ledger.Last = at
	if o.blank {
		o.ledger.Sent = at
		return
	}
	if o.ledger.Sent.Above(known) {
		known = o.ledger.Sent
	}
	if at.Above(known) {
		o.ledger.Owed = append(o.ledger.Owed, gap(known, at, nowMS))
		o.bytes += owedBytes
		o.announce()
	}
}

// gap stands for webhooks that a node does not have, above from and up to to.
func gap(from, to api.Place, atMS int64) api.OwedWebhook {
	return api.OwedWebhook{ID: to, From: &from, Event: wire.WebhookGap, AtMS: atMS}
}

// shrink makes a gap of the oldest webhooks above the bounds, a batch at a
// time.
func (o *outbox) shrink() {
	if len(o.ledger.Owed) <= maxOwed && o.bytes <= maxOwedBytes {
		return
	}
	owed := o.ledger.Owed
	from, n := o.ledger.Sent, 0
	if owed[0].From != nil {
		from = *owed[0].From
	}
	for len(owed)-n > maxOwed-maxOwed/8 || o.bytes > maxOwedBytes-maxOwedBytes/8 {
		o.bytes -= sizeOf(owed[n])
		n++
	}
	last := owed[n-1]
	o.ledger.Owed = append([]api.OwedWebhook{gap(from, last.ID, last.AtMS)}, owed[n:]...)
	o.bytes += owedBytes
	o.announce()
}

// sent notes that a leader has sent everything up to a place.
func (o *outbox) sent(at api.Place) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.blank = false
	if !o.ledger.Known {
		o.ledger.Known = true
		o.announce()
	}
	o.forget(at)
}

// forget drops what is not owed any more.
func (o *outbox) forget(at api.Place) {
	if at.Above(o.ledger.Sent) {
		o.ledger.Sent = at
	}
	n := 0
	for n < len(o.ledger.Owed) && !o.ledger.Owed[n].ID.Above(at) {
		o.bytes -= sizeOf(o.ledger.Owed[n])
		n++
	}
	if n > 0 {
		o.ledger.Owed = slices.Clone(o.ledger.Owed[n:])
		o.announce()
	}
	if len(o.ledger.Owed) > 0 {
		if first := &o.ledger.Owed[0]; first.From != nil && at.Above(*first.From) {
			first.From = &at
		}
	}
}

// announce wakes who waits for a change; mu is held.
func (o *outbox) announce() {
	o.edits++
	if o.moved != nil {
		close(o.moved)
		o.moved = nil
	}
}

// nudge wakes who waits for a change, though nothing has changed.
func (o *outbox) nudge() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.announce()
}

// next returns the oldest webhook that is owed, if there is one, and what is
// closed at the next change.
func (o *outbox) next() (w api.OwedWebhook, ok bool, moved <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.ledger.Owed) > 0 {
		w, ok = o.ledger.Owed[0], true
	}
	return w, ok, o.wait()
}

// wait returns what is closed at the next change; mu is held.
func (o *outbox) wait() <-chan struct{} {
	if o.moved == nil {
		o.moved = make(chan struct{})
	}
	return o.moved
}

// waiting returns how many webhooks are owed, and since when in the cluster's
// time the first is.
func (o *outbox) waiting() (n int, sinceMS int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.ledger.Owed) > 0 {
		sinceMS = o.ledger.Owed[0].AtMS
	}
	return len(o.ledger.Owed), sinceMS
}

// copied returns what is known as of now, its count of changes, and what is
// closed at the next.
func (o *outbox) copied() (api.WebhookLedger, uint64, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l := o.ledger
	l.Owed = append([]api.OwedWebhook{}, l.Owed...)
	return l, o.edits, o.wait()
}

// leads says whether this node sends.
func (o *outbox) leads(lead bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lead = lead
}

// mark returns up to where everything has been sent, nil while this node does
// not send. With nothing owed that is the end of the log.
func (o *outbox) mark() *api.Place {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.lead {
		return nil
	}
	if len(o.ledger.Owed) == 0 && o.ledger.Last.Above(o.ledger.Sent) {
		o.ledger.Sent = o.ledger.Last
	}
	at := o.ledger.Sent
	return &at
}
