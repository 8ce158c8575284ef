package relay

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// How long silence may last, and how often each side breaks it.
const (
	// keepAliveEvery is how long either side lets pass without sending
	// anything. Two may be late or lost in a scheduling pause before
	// senderSilence is over.
	keepAliveEvery = 2 * time.Second

	// senderSilence is how long a reader waits for a byte before it takes the
	// link for dead: the same 5 s in which an agent gives up a control session
	// (DESIGN section 6).
	senderSilence = 5 * time.Second

	// readerSilence is how long a sender waits for a sign of life from its
	// reader. It is longer, because to give up is to make the reader dial
	// again, and nobody but this one sender waits.
	readerSilence = 30 * time.Second

	// partingGrace is how long a sender whose context has ended may still
	// write, so that a reader learns where to go instead of timing out.
	partingGrace = time.Second

	// endLinger is how long a sender waits, after its last frame, for the
	// reader to close. To close first, with a reader's ack unread, would make
	// TCP reset the connection and throw away the tail still in flight.
	endLinger = 5 * time.Second
)

var (
	// ErrPeerSilent says that nothing came from the other side for longer than
	// is allowed: it hangs, or the link is cut without a trace.
	ErrPeerSilent = errors.New("peer silent")

	// ErrLinkLost says that the link ended before the stream did.
	ErrLinkLost = errors.New("link lost before the end of the stream")
)

// link is a Conn with the deadlines of one direction's role. Read and Write
// may each be used by one goroutine; the other methods by any.
type link struct {
	conn    Conn
	silence time.Duration

	mu      sync.Mutex
	shut    bool // deadlines lie in the past and stay there
	parting bool // the write deadline is set for good
}

func newLink(conn Conn, silence time.Duration) *link {
	return &link{conn: conn, silence: silence}
}

// Read reads under a fresh deadline, so that what is bounded is silence and
// not the time a large frame takes on a thin line. Any byte that comes proves
// the peer alive, and so gives a blocked Write more time too: a reader that is
// slow but there is held back, not dropped.
func (l *link) Read(p []byte) (int, error) {
	l.mu.Lock()
	if !l.shut {
		_ = l.conn.SetReadDeadline(time.Now().Add(l.silence))
	}
	l.mu.Unlock()
	n, err := l.conn.Read(p)
	if n > 0 {
		l.armWrite()
	}
	return n, err
}

// Write writes under a deadline that each byte from the peer renews.
func (l *link) Write(p []byte) (int, error) {
	l.armWrite()
	return l.conn.Write(p)
}

func (l *link) armWrite() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.shut && !l.parting {
		_ = l.conn.SetWriteDeadline(time.Now().Add(readerSilence))
	}
}

// part leaves a blocked or later Write no more than grace.
func (l *link) part(grace time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.shut {
		l.parting = true
		_ = l.conn.SetWriteDeadline(time.Now().Add(grace))
	}
}

// close ends the link and every call blocked in it. Closing alone is not
// enough: a yamux stream that is closed on this side still reads.
func (l *link) close() {
	l.mu.Lock()
	already := l.shut
	l.shut = true
	if !already {
		past := time.Unix(1, 0)
		_ = l.conn.SetReadDeadline(past)
		_ = l.conn.SetWriteDeadline(past)
	}
	l.mu.Unlock()
	if !already {
		_ = l.conn.Close()
	}
}

// explain turns what a Read or Write returned into one of the two ways in
// which a link fails.
func (l *link) explain(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("%w for %v", ErrPeerSilent, l.silence)
	}
	return fmt.Errorf("%w: %w", ErrLinkLost, err)
}

// sleep waits for d or until ctx ends, and reports whether it was d.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
