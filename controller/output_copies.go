package controller

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"rcd/api"
	"rcd/controller/copies"
	"rcd/model"
	"rcd/raftnode"
	"rcd/relay"
	"rcd/wire"
)

// askEvery is how often one reader asks the other controllers for their copies.
const askEvery = 2 * time.Second

// deafFor is how long it does not ask one that has not answered.
const deafFor = 30 * time.Second

// errGapHere ends the reading of a copy where it has a gap: somebody else may
// have what is missing.
var errGapHere = errors.New("a gap in the copy")

// hasWhole reports whether this node has a copy of an output with every byte in
// it.
func (c *Controller) hasWhole(row *model.Job) bool {
	store := c.copying.store.Load()
	if store == nil || !row.State.Terminal() {
		return false
	}
	state, ok := store.State(row.Number)
	return ok && state.Complete && !state.Gaps && state.Lease == row.Lease && allOf(row, state.Length)
}

// runWhole feeds the conduit from a whole copy. A reader who finds it damaged,
// or gone, comes again and is served by somebody else.
func (o *output) runWhole(ctx context.Context, row *model.Job) error {
	if err := o.fromOwn(ctx, row); err != nil {
		return err
	}
	if !allOf(row, o.next) {
		return raftnode.ErrNotLeader
	}
	return o.endWhole(ctx, row)
}

// endWhole ends the stream at its length.
func (o *output) endWhole(ctx context.Context, row *model.Job) error {
	return o.conduit.Take(ctx, relay.End{Length: o.next, StreamEnd: wire.StreamEnd{
		State: row.State.String(), Digest: hex.EncodeToString(row.OutputDigest), Complete: true,
	}})
}

// fromOwn hands on what this node's copy has from the next offset on, up to a
// gap. Only the end of ctx is an error: whatever is wrong with the copy, others
// may have the rest.
func (o *output) fromOwn(ctx context.Context, row *model.Job) error {
	store := o.c.copying.store.Load()
	if store == nil {
		return nil
	}
	source, err := store.Open(copies.Key{Job: row.Number, Lease: row.Lease}, o.next, copies.Mode{})
	if err != nil {
		return nil
	}
	defer source.Close()
	for {
		record, err := source.Next(ctx)
		if err != nil {
			return context.Cause(ctx)
		}
		if _, isEnd := record.(relay.End); isEnd {
			return nil
		}
		if err := o.takeCopy(ctx, record); err != nil {
			if errors.Is(err, errGapHere) {
				return nil
			}
			return err
		}
		o.next = endOf(record)
	}
}

// takeCopy takes a record of a copy into the conduit, up to its End or a gap.
func (o *output) takeCopy(ctx context.Context, record relay.Record) error {
	switch record.(type) {
	case relay.End:
		return nil
	case relay.Gap:
		return errGapHere
	}
	return o.conduit.Take(ctx, record)
}

func endOf(record relay.Record) int64 {
	switch r := record.(type) {
	case relay.Data:
		return r.Offset + int64(len(r.Bytes))
	case relay.Gap:
		return r.To
	}
	return 0
}

// fromCopies hands on what others' copies have of the output of a job that has
// ended: what one misses another may have. A gap counts only when nobody else
// can have what is missing, the host included. It reports whether there was
// anything, so that it is worth to look again.
func (o *output) fromCopies(ctx context.Context, row *model.Job) (more bool, err error) {
	if o.host != nil || o.hostGone(row) {
		return o.passGap(ctx, row, nil)
	}
	if time.Since(o.asked) < askEvery {
		return false, nil
	}
	before := o.next
	if err := o.fromPeers(ctx, row); err != nil || o.next > before {
		return o.next > before, err
	}
	o.asked = time.Now()
	return false, nil
}

// passGap hands on what somebody has of what is missing at the next offset, or
// else the gap, as short as anybody's: a bound does not cut everywhere at the
// same place, and damage is one's own. gap is the host's, if that has one here.
// It reports whether there was anything.
func (o *output) passGap(ctx context.Context, row *model.Job, gap *relay.Gap) (more bool, err error) {
	before := o.next
	if err := o.fromPeers(ctx, row); err != nil || o.next > before {
		return o.next > before, err
	}
	found := false
	note := func(record relay.Record) {
		if g, is := record.(relay.Gap); is && (gap == nil || g.To < gap.To) {
			gap = &g
		} else if _, is := record.(relay.Data); is {
			found = true // meanwhile
		}
	}
	if store := o.c.copying.store.Load(); store != nil {
		if source, err := store.Open(copies.Key{Job: row.Number, Lease: row.Lease}, o.next, copies.Mode{Holes: true}); err == nil {
			record, _ := source.Next(ctx)
			note(record)
			source.Close()
		}
	}
	first := relay.SinkFunc(func(_ context.Context, record relay.Record) error { note(record); return errGapHere })
	for _, m := range o.c.node.Members() {
		if conn := o.ask(ctx, m.ID, row, true); conn != nil {
			_, _, _ = relay.Receive(ctx, conn, o.next, first)
		}
	}
	switch {
	case ctx.Err() != nil:
		return false, context.Cause(ctx)
	case found || gap == nil:
		return found, nil
	}
	if err := o.conduit.Take(ctx, *gap); err != nil {
		return false, err
	}
	o.next = gap.To
	return true, nil
}

// fromPeers is fromOwn for the other controllers, one after the other.
func (o *output) fromPeers(ctx context.Context, row *model.Job) error {
	for _, m := range o.c.node.Members() {
		if allOf(row, o.next) {
			break
		}
		if conn := o.ask(ctx, m.ID, row, false); conn != nil {
			o.next, _, _ = relay.Receive(ctx, conn, o.next, relay.SinkFunc(o.takeCopy))
		}
	}
	return context.Cause(ctx)
}

// ask opens the copy of another controller at the next offset; nil if that is
// not to be had. Who does not answer is left alone for a while.
func (o *output) ask(ctx context.Context, id string, row *model.Job, holes bool) relay.Conn {
	if id == o.c.config.NodeID || time.Since(o.deaf[id]) < deafFor || ctx.Err() != nil {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	conn, err := o.c.peerClient.Copy(within, id, api.CopyRequest{Job: row.Number, Lease: row.Lease, Offset: o.next, Holes: holes})
	if err != nil && within.Err() != nil {
		if o.deaf == nil {
			o.deaf = map[string]time.Time{}
		}
		o.deaf[id] = time.Now()
	}
	if err != nil {
		return nil
	}
	return conn
}
