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
	if err := o.fromOwn(ctx, row, false); err != nil {
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
// gap, or with one gap and what follows it. Only the end of ctx is an error:
// whatever is wrong with the copy, others may have the rest.
func (o *output) fromOwn(ctx context.Context, row *model.Job, gap bool) error {
	store := o.c.copying.store.Load()
	if store == nil {
		return nil
	}
	source, err := store.Open(copies.Key{Job: row.Number, Lease: row.Lease}, o.next, copies.Mode{Holes: gap})
	if err != nil {
		return nil
	}
	defer source.Close()
	sink := o.copySink(gap)
	for {
		record, err := source.Next(ctx)
		if err != nil {
			return context.Cause(ctx)
		}
		if _, isEnd := record.(relay.End); isEnd {
			return nil
		}
		if err := sink.Take(ctx, record); err != nil {
			if errors.Is(err, errGapHere) {
				return nil
			}
			return err
		}
		o.next = endOf(record)
	}
}

// copySink takes the records of a copy into the conduit, up to its End or a gap
// that it must not take.
func (o *output) copySink(gap bool) relay.Sink {
	return relay.SinkFunc(func(ctx context.Context, record relay.Record) error {
		switch record.(type) {
		case relay.End:
			return nil
		case relay.Gap:
			if !gap {
				return errGapHere
			}
			gap = false
		}
		return o.conduit.Take(ctx, record)
	})
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

// fromCopies hands on what copies have of the output of a job that has ended,
// others' first: what one misses another may have. A gap counts only when
// nobody else can have what is missing, the host included. It reports whether
// there was anything, so that it is worth to look again.
func (o *output) fromCopies(ctx context.Context, row *model.Job) (more bool, err error) {
	last := o.host != nil || o.hostGone(row)
	if !last && time.Since(o.asked) < askEvery {
		return false, nil
	}
	before := o.next
	if err := o.fromPeers(ctx, row, false); err != nil || o.next > before {
		return o.next > before, err
	}
	if !last {
		o.asked = time.Now()
		return false, nil
	}
	if err := o.fromOwn(ctx, row, true); err != nil || o.next > before {
		return o.next > before, err
	}
	return o.next > before, o.fromPeers(ctx, row, true)
}

// fromPeers is fromOwn for the other controllers, one after the other.
func (o *output) fromPeers(ctx context.Context, row *model.Job, gap bool) error {
	for _, m := range o.c.node.Members() {
		if m.ID == o.c.config.NodeID || allOf(row, o.next) {
			continue
		}
		within, cancel := context.WithTimeout(ctx, dialWithin)
		conn, err := o.c.peerClient.Copy(within, m.ID, api.CopyRequest{Job: row.Number, Lease: row.Lease, Offset: o.next})
		cancel()
		if err == nil {
			o.next, _, _ = relay.Receive(ctx, conn, o.next, o.copySink(gap))
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}
