package bubble

import (
	"context"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// connectTime is how long a connect takes that is answered, one way or the
// other: above zero, so that a loop of failing dials lets the clock advance.
const connectTime = 50 * time.Microsecond

// Network is a switchboard of in-memory listeners. A host is known by the host
// part of its addresses ("c1" of "c1:7001"). Methods may be called
// concurrently.
type Network struct {
	mu        sync.Mutex // guards what follows
	listeners map[string]*listener
	isolated  map[string]bool
	killed    map[string]bool
	cut       map[[2]string]bool
	conns     map[*conn]struct{}
}

// NewNetwork returns a network without hosts.
func NewNetwork() *Network {
	return &Network{
		listeners: map[string]*listener{}, isolated: map[string]bool{},
		killed: map[string]bool{}, cut: map[[2]string]bool{}, conns: map[*conn]struct{}{},
	}
}

// Listen returns a listener on addr, or EADDRINUSE.
func (n *Network) Listen(addr string) (net.Listener, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.listeners[addr] != nil {
		return nil, &net.OpError{Op: "listen", Net: "mem", Addr: address(addr), Err: syscall.EADDRINUSE}
	}
	l := &listener{network: n, addr: address(addr), accept: make(chan net.Conn), done: make(chan struct{})}
	n.listeners[addr] = l
	return l, nil
}

// Dialer returns the dial function of a host. A dial fails with ECONNREFUSED
// where nothing listens, and waits for its context, as a dropped SYN does,
// where a link is cut.
func (n *Network) Dialer(from string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, _, addr string) (net.Conn, error) { return n.dial(ctx, from, addr) }
}

func (n *Network) dial(ctx context.Context, from, addr string) (net.Conn, error) {
	fail := func(err error) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Net: "mem", Addr: address(addr), Err: err}
	}
	select {
	case <-time.After(connectTime):
	case <-ctx.Done():
		return fail(ctx.Err())
	}
	n.mu.Lock()
	down, dead := n.down(from, host(addr)), n.killed[from]
	target := n.listeners[addr]
	n.mu.Unlock()
	if dead {
		return fail(syscall.ENETUNREACH)
	}
	if down {
		<-ctx.Done()
		return fail(os.ErrDeadlineExceeded)
	}
	if target == nil {
		return fail(syscall.ECONNREFUSED)
	}
	a, b := net.Pipe()
	near, far := n.join(a, b, from, addr)
	select {
	case target.accept <- far:
		return near, nil
	case <-target.done:
		near.Close()
		return fail(syscall.ECONNREFUSED)
	case <-ctx.Done():
		near.Close()
		return fail(ctx.Err())
	}
}

// down needs n.mu.
func (n *Network) down(a, b string) bool {
	return n.isolated[a] || n.isolated[b] || n.cut[[2]string{a, b}] || n.cut[[2]string{b, a}]
}

// Isolate cuts every link of a host: its connections end and nothing answers
// new ones.
func (n *Network) Isolate(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isolated[name] = true
	n.end(func(c *conn) bool { return c.from == name || c.to == name })
}

// Cut cuts the link between two hosts in both directions.
func (n *Network) Cut(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[[2]string{a, b}] = true
	n.end(func(c *conn) bool { return c.from == a && c.to == b || c.from == b && c.to == a })
}

// Heal undoes Isolate, Cut and Kill for a host; a killed one must listen again.
func (n *Network) Heal(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.isolated, name)
	delete(n.killed, name)
	for link := range n.cut {
		if link[0] == name || link[1] == name {
			delete(n.cut, link)
		}
	}
}

// Kill is what others see when a host's process dies and the host lives: its
// connections end, and new ones to it are refused. What still runs of it
// reaches nobody until Heal.
func (n *Network) Kill(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.killed[name] = true
	for addr, l := range n.listeners {
		if host(addr) == name {
			l.once.Do(func() { close(l.done) })
			delete(n.listeners, addr)
		}
	}
	n.end(func(c *conn) bool { return c.from == name || c.to == name })
}

// end needs n.mu.
func (n *Network) end(match func(*conn) bool) {
	for c := range n.conns {
		if match(c) {
			c.Conn.Close()
			delete(n.conns, c)
		}
	}
}

// join makes the two ends of a connection.
func (n *Network) join(a, b net.Conn, from, addr string) (near, far *conn) {
	near = &conn{Conn: a, network: n, from: from, to: host(addr), remote: address(addr)}
	far = &conn{Conn: b, network: n, from: from, to: host(addr), remote: address(from)}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns[near], n.conns[far] = struct{}{}, struct{}{}
	return near, far
}

// conn is one end of a connection. A net.Pipe says io.ErrClosedPipe to its own
// side once it was closed from elsewhere, where a socket would say EOF.
type conn struct {
	net.Conn
	network  *Network
	from, to string
	remote   address
}

func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err == io.ErrClosedPipe {
		err = net.ErrClosed
	}
	return n, err
}

func (c *conn) Close() error {
	c.network.mu.Lock()
	delete(c.network.conns, c)
	c.network.mu.Unlock()
	return c.Conn.Close()
}

func (c *conn) RemoteAddr() net.Addr { return c.remote }

// listener is one address of a host.
type listener struct {
	network *Network
	addr    address
	accept  chan net.Conn
	done    chan struct{}
	once    sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accept:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() { close(l.done) })
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	if l.network.listeners[string(l.addr)] == l {
		delete(l.network.listeners, string(l.addr))
	}
	return nil
}

func (l *listener) Addr() net.Addr { return l.addr }

// address is a host:port of the network.
type address string

func (address) Network() string  { return "mem" }
func (a address) String() string { return string(a) }

func host(addr string) string {
	h, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return h
}
