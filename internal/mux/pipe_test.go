package mux

import (
	"context"
	"net"
	"sync"
	"testing"
)

// pipes is a listener on net.Pipe, with a dialer to it: works inside synctest.
type pipes struct {
	accept chan net.Conn
	done   chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{accept: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return p }
func (*pipes) Network() string  { return "pipe" }
func (*pipes) String() string   { return "pipe" }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.accept <- far:
		return near, nil
	case <-p.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

var (
	clusterKey = Key{"cluster", []byte("the cluster key")}
	workerKeys = []Key{{"ci", []byte("first")}, {"lab", []byte("second")}}
	c1         = Identity{"cl-1", 1, "c1", "inc-1"}
	c2         = Identity{"cl-1", 1, "c2", "inc-2"}
)

func self(id Identity) func() Identity { return func() Identity { return id } }

// rig is a listener and a dialer of one cluster, each changed before use.
func rig(t *testing.T, change func(*Config, *Dialer)) (*Listener, *Dialer) {
	t.Helper()
	p := newPipes()
	config := Config{ClusterKey: clusterKey, WorkerKeys: func() []Key { return workerKeys }, Self: self(c1)}
	d := &Dialer{Self: self(c2), Key: clusterKey, DialContext: p.dial}
	if change != nil {
		change(&config, d)
	}
	l, err := NewListener(p, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l, d
}
