package api

import (
	"context"
	"net"
	"sync"
)

// pipeListener is a network of one address in memory, so that a test may run
// in virtual time.
type pipeListener struct {
	name  string
	conns chan net.Conn
	shut  chan struct{}
	once  sync.Once

	mu      sync.Mutex // guards refuse and open
	refuse  bool
	open    []net.Conn // the far ends of what was dialled
	dialled int
}

func newPipeListener(name string) *pipeListener {
	return &pipeListener{name: name, conns: make(chan net.Conn), shut: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.shut:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.shut) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr(l.name) }

type pipeAddr string

func (pipeAddr) Network() string  { return "pipe" }
func (a pipeAddr) String() string { return string(a) }

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	l.mu.Lock()
	refuse := l.refuse
	l.dialled++
	l.mu.Unlock()
	if refuse {
		return nil, &net.OpError{Op: "dial", Net: "pipe", Err: net.ErrClosed}
	}
	near, far := net.Pipe()
	select {
	case l.conns <- far:
		l.mu.Lock()
		l.open = append(l.open, far)
		l.mu.Unlock()
		return near, nil
	case <-l.shut:
	case <-ctx.Done():
	}
	return nil, &net.OpError{Op: "dial", Net: "pipe", Err: net.ErrClosed}
}

// cut refuses new connections and breaks those there are.
func (l *pipeListener) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = true
	for _, c := range l.open {
		c.Close()
	}
	l.open = nil
}
