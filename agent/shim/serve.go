package shim

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	// coalesce is the least time between two statuses that tell only of more output.
	coalesce = 5 * time.Millisecond
	// watcherLimit bounds the agents that follow at a time. One does; more are left over from a moment of change.
	watcherLimit = 8
)

// board is the job's status and who wants to hear of it.
type board struct {
	mu     sync.Mutex
	status Status                     // guarded by mu
	ears   map[chan struct{}]struct{} // guarded by mu; each holds one wake-up

	turned chan struct{} // closed when the job has ended
}

func newBoard() *board {
	return &board{status: Status{Phase: Starting}, ears: make(map[chan struct{}]struct{}), turned: make(chan struct{})}
}

func (b *board) now() Status {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.status
}

func (b *board) change(f func(*Status)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.status.Phase
	f(&b.status)
	for ear := range b.ears {
		select {
		case ear <- struct{}{}:
		default:
		}
	}
	if before != Ended && b.status.Phase == Ended {
		close(b.turned)
	}
}

func (b *board) grow(length int64) { b.change(func(s *Status) { s.Output = length }) }

func (b *board) listen() (ear chan struct{}, done func()) {
	ear = make(chan struct{}, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ears[ear] = struct{}{}
	return ear, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.ears, ear)
	}
}

// server answers agents on the job's socket.
type server struct {
	board  *board
	kills  chan<- string
	limits chan<- time.Duration
	hello  helloBody
	log    *slog.Logger

	attached *attachment // nil for a log job
}

// run accepts until the listener is closed, and returns when every agent has been told the end or has gone.
func (s *server) run(listener net.Listener) {
	var watchers sync.WaitGroup
	defer watchers.Wait()
	places := make(chan struct{}, watcherLimit)
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			s.log.Warn("accept", "error", err)
			time.Sleep(coalesce) // out of descriptors, say
			continue
		}
		select {
		case places <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		watchers.Go(func() {
			defer func() { <-places }()
			s.serve(conn)
		})
	}
}

// serve tells one agent what happens until the job has ended or the agent is gone.
func (s *server) serve(conn net.Conn) {
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel()
	defer func() { _ = conn.Close() }()
	l := &line{opened: make(chan struct{}, 1)}
	reading.Go(func() {
		defer cancel()
		s.listenTo(ctx, conn, l)
	})
	ear, deaf := s.board.listen()
	defer deaf()
	if send(conn, message{Type: typeHello, Hello: &s.hello}) != nil {
		return
	}
	still := time.NewTicker(keepalive)
	defer still.Stop()
	for {
		status := s.board.now()
		if send(conn, message{Type: typeStatus, Status: status.body()}) != nil || status.Phase == Ended {
			return
		}
		// At most one status each 5 ms while output runs; the end does not wait.
		pause := time.NewTimer(coalesce)
		select {
		case <-pause.C:
		case <-s.board.turned:
		case <-ctx.Done():
		}
		pause.Stop()
		select {
		case <-ear:
		case <-still.C:
		case <-l.opened:
			s.tellInput(ctx, conn, l.writer)
			return
		case <-s.board.turned:
		case <-ctx.Done():
			return
		}
	}
}

// listenTo takes an agent's orders, and a writer's input. It returns when the agent is gone, silent or talks nonsense.
func (s *server) listenTo(ctx context.Context, conn net.Conn, l *line) {
	for {
		m, err := receive(conn)
		if err != nil {
			return
		}
		switch {
		case m.Type == typePing:
		case m.Type == typeKill && m.Kill != nil:
			select {
			case s.kills <- m.Kill.Reason:
			case <-s.board.turned:
				return
			case <-ctx.Done():
				return
			}
		case m.Type == typeExtend && m.Extend != nil:
			select {
			case s.limits <- m.Extend.MaxRuntime:
			case <-s.board.turned:
				return
			case <-ctx.Done():
				return
			}
		case !s.attended(l, m):
			s.log.Warn("unknown or unfit message from an agent", "type", m.Type)
			return
		}
	}
}
