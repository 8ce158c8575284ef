package controller

import (
	"context"
	"fmt"

	"rcd/api"
	"rcd/controller/copies"
	"rcd/model"
	"rcd/relay"
)

// Copy implements api.Internal. A leader that has no room for copies hands on
// what the host gives, so that the others have some.
func (c *Controller) Copy(ctx context.Context, r api.CopyRequest) (api.CopySource, error) {
	key := copies.Key{Job: r.Job, Lease: r.Lease}
	store := c.copying.store.Load()
	if r.Follow && (store == nil || store.Stopped() != "" && !completeIn(store, key)) {
		if source := c.passSpool(ctx, key, r.Offset); source != nil {
			return source, nil
		}
	}
	if store == nil {
		return nil, fmt.Errorf("copy of %s: %w", model.JobID(r.Job), copies.ErrNone)
	}
	if state, ok := store.State(key.Job); r.Whole && !(ok && state.Complete && !state.Gaps) {
		return nil, fmt.Errorf("whole copy of %s: %w", model.JobID(r.Job), copies.ErrNone)
	}
	source, err := store.Open(key, r.Offset, copies.Mode{Follow: r.Follow, Holes: r.Holes})
	if err != nil {
		return nil, fmt.Errorf("copy of %s: %w", model.JobID(r.Job), err)
	}
	return source, nil
}

func completeIn(store *copies.Store, key copies.Key) bool {
	state, ok := store.State(key.Job)
	return ok && state.Lease == key.Lease && state.Complete
}

// passSpool opens the spool of a job on its host for another controller; nil if
// that is not in this node's reach.
func (c *Controller) passSpool(ctx context.Context, key copies.Key, offset int64) api.CopySource {
	row := c.machine.View().Job(key.Job)
	if row == nil || row.Lease != key.Lease || !c.Leader().Self || !c.hub.Attached(row.Host) {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	p := passedSpool{Conduit: relay.NewConduit(0), cancel: cancel}
	if !c.goes(func() {
		defer cancel()
		dialing, done := context.WithTimeout(ctx, dialWithin)
		conn, err := c.openSpool(dialing, row, offset, true)
		done()
		if err == nil {
			_, _, err = relay.Receive(ctx, conn, offset, p.Conduit)
		}
		if err != nil {
			p.Fail(err)
		}
	}) {
		cancel()
		return nil
	}
	return p
}

// passedSpool is a spool on its way to another controller.
type passedSpool struct {
	*relay.Conduit
	cancel context.CancelFunc
}

// Close ends the way.
func (p passedSpool) Close() { p.cancel() }
