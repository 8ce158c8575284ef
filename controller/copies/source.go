package copies

import (
	"context"
	"errors"
	"io"

	"rcd/agent/spool"
	"rcd/relay"
	"rcd/wire"
)

// Source reads one copy from some offset on, as a relay.Source. The caller closes it.
type Source struct {
	store  *Store
	held   *held
	reader *spool.Reader
	offset int64
	mode   Mode
}

// Mode says how a copy is read.
type Mode struct {
	// Follow: as long as somebody writes the copy, more is waited for.
	Follow bool
	// Holes: damage is a gap like any other, for readers who have nobody else to ask.
	Holes bool
}

// Open returns a cursor in the copy of an output; offset may lie ahead of what is there. ErrNone if there is no such copy.
func (s *Store) Open(key Key, offset int64, mode Mode) (*Source, error) {
	s.mu.Lock()
	h := s.copies[key.Job]
	s.mu.Unlock()
	if h == nil || h.key != key {
		return nil, ErrNone
	}
	reader, err := spool.Open(s.dirOf(key.Job), offset)
	source := &Source{store: s, held: h, reader: reader, offset: offset, mode: mode}
	if err != nil {
		return nil, errors.Join(ErrNone, source.damaged())
	}
	return source, nil
}

// Close ends the cursor.
func (r *Source) Close() { _ = r.reader.Close() }

// Next implements relay.Source. The End is Complete if the copy is. Errors: ErrNone when the copy was removed, ErrDamaged when it turns out to be not
// what it was said to be, or what the disk answered; whatever was returned before is right.
func (r *Source) Next(ctx context.Context) (relay.Record, error) {
	for {
		r.store.mu.Lock()
		h := r.held
		length, complete, waits, gone := h.length, h.complete, h.claimed && r.mode.Follow, h.gone
		if h.changed == nil && waits {
			h.changed = make(chan struct{})
		}
		changed := h.changed
		r.store.mu.Unlock()
		switch {
		case gone:
			return nil, ErrNone
		case r.offset < length:
			return r.read(length)
		case complete:
			return relay.End{Length: r.offset, StreamEnd: wire.StreamEnd{Complete: true}}, nil
		case !waits:
			return relay.End{Length: r.offset, StreamEnd: wire.StreamEnd{Reason: "the copy has no more"}}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// read returns the record at the cursor, which the copy has.
func (r *Source) read(length int64) (relay.Record, error) {
	r.reader.Finish(length)
	record, err := r.reader.Next()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, spool.ErrNothingYet):
		return nil, r.damaged() // the length is always there, as data or a gap
	case err != nil:
		return nil, r.orGone(err)
	case record.Gap != nil && !r.mode.Holes && (record.Gap.Cause == spool.CauseCorrupt || record.Gap.Cause == spool.CauseLost):
		return nil, r.damaged()
	}
	r.offset = record.End()
	if record.Gap != nil {
		return relay.Gap{From: record.Gap.From, To: record.Gap.To, Cause: record.Gap.Cause}, nil
	}
	return relay.Data{Offset: record.Offset, Stream: wire.Stream(record.Stream), Bytes: record.Data}, nil
}

// damaged notes that the copy is to be fetched again. A hole in one that was removed meanwhile is none.
func (r *Source) damaged() error {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if r.held.gone {
		return ErrNone
	}
	if !r.held.damaged {
		r.held.damaged = true
		r.store.log.Warn("a copy of output is damaged and is fetched again", "job", r.held.key.Job, "offset", r.offset)
	}
	return ErrDamaged
}

func (r *Source) orGone(err error) error {
	r.store.mu.Lock()
	defer r.store.mu.Unlock()
	if r.held.gone {
		return ErrNone
	}
	return err
}
