package controller

import (
	"context"
	"encoding/hex"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"rcd/api"
	"rcd/controller/copies"
	"rcd/model"
	"rcd/relay"
	"rcd/wire"
)

// How fast output is copied to one controller, all jobs together, in bytes a
// second: below what a disk and a network of today take, so that neither Raft
// nor a reader waits behind it.
const (
	copyRate     = 64 << 20
	copyRateBusy = 8 << 20 // while somebody reads from a host
	busyFor      = time.Second
)

var errNoSource = errors.New("nobody within reach has the output")

// fetch copies what there is of one output, until there is no more, the link
// breaks or ctx ends. It reports whether anything was added.
func (k *copying) fetch(ctx context.Context, job uint64, tries int) bool {
	store, row := k.store.Load(), k.c.machine.View().Job(job)
	if row == nil {
		return false
	}
	progress, err := k.fetchFrom(ctx, store, row, tries)
	if err != nil && ctx.Err() == nil {
		k.log.Debug("output not copied", "job", row.ID(), "err", err)
	}
	return progress
}

func (k *copying) fetchFrom(ctx context.Context, store *copies.Store, row *model.Job, tries int) (progress bool, err error) {
	key := copies.Key{Job: row.Number, Lease: row.Lease}
	state, held := store.State(row.Number)
	held = held && state.Lease == row.Lease
	damaged, from := held && state.Damaged, int64(0)
	if held && !damaged {
		from = state.Length
	}
	if allOf(row, from) {
		w, err := store.Begin(key)
		if err != nil {
			return false, err
		}
		defer w.Close()
		return true, k.complete(w, row)
	}
	// A damaged copy is not given up for one that may have less.
	want := api.CopyRequest{Job: key.Job, Lease: key.Lease, Offset: from, Whole: damaged && !state.Gaps && row.State.Terminal()}
	conn, fromHost, err := k.source(ctx, want, row, tries)
	if err != nil {
		return false, err
	}
	var w *copies.Writing
	begin := func() (err error) { w, err = store.Begin(key); return err }
	defer func() {
		if w != nil {
			w.Close()
		}
	}()
	if !damaged {
		if err := begin(); err != nil {
			conn.Close()
			return false, err
		}
	}
	sink := relay.SinkFunc(func(ctx context.Context, record relay.Record) error {
		if w == nil {
			// What is left of a damaged copy is given up only for bytes.
			if _, ok := record.(relay.Data); !ok {
				return errNoSource
			}
			if err := begin(); err != nil {
				return err
			}
		}
		if data, ok := record.(relay.Data); ok {
			if err := k.pace.wait(ctx, len(data.Bytes)); err != nil {
				return err
			}
		}
		return w.Take(ctx, record)
	})
	next, end, err := relay.Receive(ctx, conn, from, sink)
	progress = next > from
	if row = k.c.machine.View().Job(row.Number); row == nil || row.Lease != key.Lease || w == nil {
		return progress, err
	}
	if err == nil && fromHost && end.Complete && row.State.Terminal() && row.OutputKnown && int64(row.OutputLength) > next {
		gap := relay.Gap{From: next, To: int64(row.OutputLength), Cause: missingIn(row.Host)}
		if err := w.Take(ctx, gap); err != nil {
			return progress, err
		}
	}
	if allOf(row, w.Length()) {
		return true, errors.Join(err, k.complete(w, row))
	}
	return progress, err
}

// allOf reports whether so many bytes are the whole output of a job.
func allOf(row *model.Job, length int64) bool {
	return row.State.Terminal() && row.OutputKnown && length == int64(row.OutputLength)
}

func (k *copying) complete(w *copies.Writing, row *model.Job) error {
	return w.Complete(hex.EncodeToString(row.OutputDigest), row.FinishedAtMS)
}

// source opens a link to somebody who may have more of an output: the host for
// a leader, the leader for the others. When a job has ended and that brings
// nothing, others are asked in turn.
func (k *copying) source(ctx context.Context, want api.CopyRequest, row *model.Job, tries int) (conn relay.Conn, host bool, err error) {
	leader := k.c.Leader()
	var nodes []string
	attached := leader.Self && k.c.hub.Attached(row.Host)
	if attached {
		nodes = append(nodes, "")
	}
	if !leader.Self && leader.ID != "" {
		nodes = append(nodes, leader.ID)
	}
	if row.State.Terminal() {
		for _, m := range k.c.node.Members() {
			if m.ID != k.c.config.NodeID && m.ID != leader.ID {
				nodes = append(nodes, m.ID)
			}
		}
	}
	if len(nodes) == 0 {
		return nil, false, errNoSource
	}
	node := nodes[tries%len(nodes)]
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	if node == "" {
		conn, err := k.c.openSpool(ctx, row, want.Offset, true)
		return conn, true, err
	}
	// Only a leader is followed, and follows nobody but a host.
	want.Follow = node == leader.ID
	conn, err = k.c.peerClient.Copy(ctx, node, want)
	return conn, false, err
}

// dialWithin bounds opening a link to a host or a controller.
const dialWithin = 5 * time.Second

// openSpool opens a stream from the spool of a job on its host.
func (c *Controller) openSpool(ctx context.Context, row *model.Job, offset int64, follow bool) (relay.Conn, error) {
	conn, err := c.hub.OpenStream(ctx, row.Host)
	if err != nil {
		return nil, err
	}
	if err := relay.Ask(conn, offset, wire.StreamOpen{Job: row.ID(), Follow: follow}); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func missingIn(host string) string { return "missing in the spool of host " + host }

// pace holds copies back.
type pace struct {
	read atomic.Int64 // when somebody last read from a host, Unix nanoseconds

	mu   sync.Mutex
	next time.Time // when the next byte may come
}

// reading notes that a reader gets bytes from a host.
func (p *pace) reading() { p.read.Store(time.Now().UnixNano()) }

// wait returns when n more bytes may be taken.
func (p *pace) wait(ctx context.Context, n int) error {
	now := time.Now()
	rate := int64(copyRate)
	if now.Sub(time.Unix(0, p.read.Load())) < busyFor {
		rate = copyRateBusy
	}
	p.mu.Lock()
	if p.next.Before(now) {
		p.next = now
	}
	left := p.next.Sub(now)
	p.next = p.next.Add(time.Duration(int64(n) * int64(time.Second) / rate))
	p.mu.Unlock()
	if left < time.Millisecond {
		return nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
