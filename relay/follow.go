package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"rcd/wire"
)

// How Follow dials again. The first pause is short because a leader's death is
// repaired within tens of milliseconds (DESIGN section 5); the longest keeps a
// reader's share of the load on a struggling cluster small.
const (
	backoffFirst = 50 * time.Millisecond
	backoffMost  = time.Second

	// steadyAfter is how long a link without new bytes must have lasted to
	// count as a good one, after which the pauses begin at the first again.
	steadyAfter = keepAliveEvery

	// maxViolations is how many times in a row, with not a byte of progress,
	// the stream may break the protocol before Follow takes it for damaged:
	// more than the nodes of a large cluster.
	maxViolations = 8

	// defaultDialTimeout is the read deadline of a link: what takes longer to
	// open would have been given up once open.
	defaultDialTimeout = senderSilence
)

// DialFunc opens a link on which the other side sends from offset on. It
// chooses the node; after an error or a broken link it is called again and may
// choose another. ctx bounds only the dialling, not the life of the link. An
// error made by Permanent, or a *wire.StreamError that is not to be retried,
// ends the Follow.
type DialFunc func(ctx context.Context, offset int64) (Conn, error)

// permanentError marks an error that dialling again does not cure.
type permanentError struct{ err error }

func (e *permanentError) Error() string { return e.err.Error() }
func (e *permanentError) Unwrap() error { return e.err }

// Permanent marks an error of a DialFunc as final: no such job, not allowed, a
// malformed request. Follow returns err itself. It returns nil for nil.
func Permanent(err error) error {
	if err == nil {
		return nil
	}
	return &permanentError{err: err}
}

// Notice tells of a change in what Follow reads from.
type Notice struct {
	// Resumed is false if the link was lost (or never there) and true if, after
	// that, a new one has brought its first frame.
	Resumed bool
	// Offset is the next to be delivered.
	Offset int64
	// Err is why the link was lost; nil if Resumed.
	Err error
	// After is how long there was no link; 0 unless Resumed.
	After time.Duration
}

// FollowOptions are what a Follow may be told beyond the necessary.
type FollowOptions struct {
	// Notice, if set, is called for each loss and each resumption, in turn,
	// from the goroutine that called Follow. It must not block.
	Notice func(Notice)
	// DialTimeout bounds each call of dial; 0 means 5 s.
	DialTimeout time.Duration
	// Input, if set, is called with what the other side says of the input that
	// the caller writes to the present link: acks (FrameAck of StreamStdin), and
	// FrameEOF when nobody reads input any more. It must not block; the payload
	// is valid until it returns. A Conn that frames of input are written to must
	// take concurrent writes, each whole.
	Input func(wire.Frame)
}

// Follow reads a stream to its End over as many links as that takes: it dials,
// receives, and when the link fails dials again at the next offset, after 50 ms
// rising to 1 s with jitter, until ctx ends. The sink gets every record once
// and in order whatever breaks in between.
//
// It returns like Receive: the offset to go on at and the End, or the reason to
// stop: a permanent error of dial, an error of the other side that is not to be
// retried, a *SinkError, the cause with which ctx ended, or ErrProtocol after
// eight violations in a row without progress.
func Follow(ctx context.Context, dial DialFunc, from int64, sink Sink, opts FollowOptions) (next int64, end End, err error) {
	f := &follower{dial: dial, opts: opts, sink: sink, next: from}
	if f.opts.DialTimeout <= 0 {
		f.opts.DialTimeout = defaultDialTimeout
	}
	for {
		before, began := f.next, time.Now()
		end, err := f.once(ctx)
		if err == nil {
			return f.next, end, nil
		}
		if ctx.Err() != nil {
			return f.next, End{}, context.Cause(ctx)
		}
		if f.next > before {
			f.failures, f.violations = 0, 0
		} else if f.linked && time.Since(began) >= steadyAfter {
			f.failures = 0
		}
		if err, final := f.final(err); final {
			return f.next, End{}, err
		}
		f.lost(err)
		if !sleep(ctx, backoff(f.failures)) {
			return f.next, End{}, context.Cause(ctx)
		}
		f.failures++
	}
}

// follower is the state of one Follow.
type follower struct {
	dial DialFunc
	sink Sink
	opts FollowOptions

	next       int64
	linked     bool // the last try got as far as a link
	failures   int  // tries in a row that brought nothing
	violations int
	lostAt     time.Time // zero while there is a link
}

// once dials and receives one time.
func (f *follower) once(ctx context.Context) (End, error) {
	dialCtx, cancel := context.WithTimeout(ctx, f.opts.DialTimeout)
	conn, err := f.dial(dialCtx, f.next)
	cancel()
	f.linked = err == nil
	if err != nil {
		return End{}, err
	}
	next, end, err := receive(ctx, conn, f.next, f.sink, f.contact, f.opts.Input)
	f.next = next
	return end, err
}

// final reports whether err ends the Follow, and as what.
func (f *follower) final(err error) (error, bool) {
	var permanent *permanentError
	var refusal *wire.StreamError
	var sink *SinkError
	switch {
	case errors.As(err, &sink):
		return err, true
	case errors.As(err, &permanent):
		return permanent.err, true
	case errors.As(err, &refusal):
		return err, !refusal.Retry
	case errors.Is(err, ErrProtocol):
		f.violations++
		return err, f.violations >= maxViolations
	}
	return err, false
}

func (f *follower) lost(err error) {
	if !f.lostAt.IsZero() {
		return
	}
	f.lostAt = time.Now()
	if f.opts.Notice != nil {
		f.opts.Notice(Notice{Offset: f.next, Err: err})
	}
}

// contact is called at each frame.
func (f *follower) contact() {
	if f.lostAt.IsZero() {
		return
	}
	after := time.Since(f.lostAt)
	f.lostAt = time.Time{}
	if f.opts.Notice != nil {
		f.opts.Notice(Notice{Resumed: true, Offset: f.next, After: after})
	}
}

// backoff returns a pause between half and the whole of 50 ms doubled failures
// times, at most 1 s, so that the readers of a dead node do not come back in
// step.
func backoff(failures int) time.Duration {
	d := backoffMost
	if failures < 5 { // 50 ms << 5 is over the most
		d = min(d, backoffFirst<<failures)
	}
	return d/2 + rand.N(d/2)
}
