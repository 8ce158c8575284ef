package session

import (
	"context"
	"sync"
	"time"

	"rcd/wire"
)

const (
	// bulkGrace is how much longer than the leader an agent keeps a bytes
	// session without a stream: the leader closes it, unless it is gone.
	bulkGrace = bytesIdle + 30*time.Second
	// bulkDialTimeout is as long as the leader waits for the session.
	bulkDialTimeout = bytesWait
)

// bulkLink owns the bytes sessions of an agent: one in use and, for a moment,
// the one before it.
type bulkLink struct {
	wait sync.WaitGroup

	mu      sync.Mutex // guards what follows
	shutoff bool
	dialing bool
	cancels map[int]context.CancelFunc
	serial  int
}

// dial opens a bytes session to the leader at addr in the background. The
// leader asks only when it has none, so one that is still here is dead at the
// other end and is closed.
func (b *bulkLink) dial(l *Link, addr string, term uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shutoff || b.dialing {
		return
	}
	if b.cancels == nil {
		b.cancels = map[int]context.CancelFunc{}
	}
	b.dialing = true
	b.serial++
	id := b.serial
	for _, cancel := range b.cancels {
		cancel()
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.cancels[id] = cancel
	b.wait.Add(1)
	go func() {
		defer b.wait.Done()
		err := b.serve(ctx, l, addr, term)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.cancels[id]()
		delete(b.cancels, id)
		l.log.Debug("bytes session ended", "controller", addr, "error", err)
	}()
}

func (b *bulkLink) dialed() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dialing = false
}

// shut ends all sessions and waits for their goroutines.
func (b *bulkLink) shut() {
	b.mu.Lock()
	b.shutoff = true
	for _, cancel := range b.cancels {
		cancel()
	}
	b.mu.Unlock()
	b.wait.Wait()
}

// serve dials and serves one session until it ends.
func (b *bulkLink) serve(ctx context.Context, l *Link, addr string, term uint64) error {
	dialed := sync.OnceFunc(b.dialed)
	defer dialed()
	dialCtx, cancel := context.WithTimeout(ctx, bulkDialTimeout)
	defer cancel()
	conn, err := l.config.Dial(dialCtx, addr, true)
	if err != nil {
		return err
	}
	defer conn.Close()
	t, err := newTransport(conn, bulkProfile, true, l.log)
	if err != nil {
		return err
	}
	defer t.close()
	if err := sayBytesHello(dialCtx, t, wire.BytesHello{Host: l.config.Host, Instance: l.config.Instance, Term: term}); err != nil {
		return err
	}
	dialed()
	return serveStreams(ctx, l, t)
}

func sayBytesHello(ctx context.Context, t *transport, hello wire.BytesHello) error {
	first, err := t.open(ctx)
	if err != nil {
		return err
	}
	defer first.Close()
	out := &messages{conn: first}
	return out.send(wire.AgentMessage{BytesHello: &hello})
}

// serveStreams hands each stream to the handler, and ends the session when
// there was none for bulkGrace. It returns after all of them.
func serveStreams(ctx context.Context, l *Link, t *transport) error {
	ctx, cancel := context.WithCancel(ctx)
	use := &streamUse{last: time.Now()}
	defer func() {
		cancel()
		t.close()
		use.wait.Wait()
	}()
	for {
		waitCtx, stop := context.WithTimeout(ctx, use.left())
		conn, err := t.accept(waitCtx)
		expired := waitCtx.Err() != nil && ctx.Err() == nil
		stop()
		switch {
		case err != nil && !expired:
			return err
		case err != nil && use.left() <= 0:
			return errIdle
		case err != nil:
			continue
		case !use.begin():
			conn.Close()
			continue
		}
		go func() {
			defer use.end()
			defer conn.Close()
			l.handler.ServeStream(ctx, conn)
		}()
	}
}

// streamUse counts the streams of a session.
type streamUse struct {
	wait sync.WaitGroup

	mu   sync.Mutex // guards what follows
	open int
	last time.Time // when the last one ended
}

func (u *streamUse) begin() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open >= maxStreams {
		return false
	}
	u.open++
	u.wait.Add(1)
	return true
}

func (u *streamUse) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.open--
	u.last = time.Now()
	u.wait.Done()
}

// left returns how long the session may still be kept.
func (u *streamUse) left() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.open > 0 {
		return bulkGrace
	}
	return bulkGrace - time.Since(u.last)
}
