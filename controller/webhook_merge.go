package controller

import (
	"slices"

	"rcd/api"
)

// takeOver makes this node the one that sends, by what it and the peers that
// answered know. The highest word of what was sent counts. Without any, the
// lowest place at which one of them began to keep webhooks does: whoever began
// later must not make others forget.
func (o *outbox) takeOver(peers []api.WebhookLedger) {
	o.mu.Lock()
	defer o.mu.Unlock()
	sent, known := o.ledger.Sent, o.ledger.Known
	for _, p := range peers {
		switch {
		case p.Known && (!known || p.Sent.Above(sent)):
			sent, known = p.Sent, true
		case !p.Known && !known && sent.Above(p.Sent):
			sent = p.Sent
		}
	}
	if begun := o.ledger.Sent; begun.Above(sent) {
		o.ledger.Owed = append([]api.OwedWebhook{gap(sent, begun, 0)}, o.ledger.Owed...)
		o.ledger.Sent = sent
	}
	o.forget(sent)
	for _, p := range peers {
		var owed []api.OwedWebhook
		for _, w := range o.ledger.Owed {
			owed = append(owed, fill(w, p)...)
		}
		o.ledger.Owed = owed
	}
	o.bytes = 0
	for _, w := range o.ledger.Owed {
		o.bytes += sizeOf(w)
	}
	o.ledger.Known, o.blank, o.lead = true, false, true
	o.shrink()
	o.announce()
}

// fill returns what a peer knows to stand in the place of a gap, and anything
// else as it is.
func fill(w api.OwedWebhook, p api.WebhookLedger) []api.OwedWebhook {
	if w.From == nil || w.ID.Above(p.Last) {
		return []api.OwedWebhook{w}
	}
	from := *w.From
	var parts []api.OwedWebhook
	if p.Sent.Above(from) { // it began later
		if !w.ID.Above(p.Sent) {
			return []api.OwedWebhook{w}
		}
		parts = append(parts, gap(from, p.Sent, w.AtMS))
	}
	for _, known := range p.Owed {
		if known.From != nil {
			known = clip(known, from, w.ID)
			if known.ID.Above(*known.From) {
				parts = append(parts, known)
			}
		} else if known.ID.Above(from) && !known.ID.Above(w.ID) {
			parts = append(parts, known)
		}
	}
	return slices.Clip(parts)
}

// clip returns the part of a gap above from and up to to.
func clip(g api.OwedWebhook, from, to api.Place) api.OwedWebhook {
	if g.From.Above(from) {
		from = *g.From
	}
	if to.Above(g.ID) {
		to = g.ID
	}
	return gap(from, to, g.AtMS)
}
