package chaos

import (
	"bytes"
	"io"
	"net"
	"sync"
	"time"
)

// Proxy stands in front of one port, so that a test can cut what passes
// without touching the processes behind it.
type Proxy struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	cut   func(kind byte) bool // nil: nothing is cut
	conns map[*link]bool
	wg    sync.WaitGroup
}

// link is one proxied connection.
type link struct {
	kind byte // type byte of the preface, or 0
	near net.Conn
	far  net.Conn
}

// NewProxy listens on a free loopback port and forwards to target.
func NewProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: l, target: target, conns: map[*link]bool{}}
	p.wg.Add(1)
	go p.accept()
	return p, nil
}

// Addr is where to dial instead of the target.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Cut swallows every byte of connections whose type byte which says yes to,
// both ways, old and new ones, as a firewall that drops packets does. Nobody is told.
// With which nil all are cut.
func (p *Proxy) Cut(which func(kind byte) bool) {
	if which == nil {
		which = func(byte) bool { return true }
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = which
}

// Heal lets new connections pass. The ones that were cut have lost bytes: they
// are reset, as a peer that comes back does to connections it forgot.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if p.cut != nil && p.cut(c.kind) {
			c.close()
		}
	}
	p.cut = nil
}

// Close ends the proxy and every connection through it.
func (p *Proxy) Close() {
	p.listener.Close()
	p.mu.Lock()
	for c := range p.conns {
		c.close()
	}
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) dropped(c *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cut != nil && p.cut(c.kind)
}

func (p *Proxy) accept() {
	defer p.wg.Done()
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Add(1)
		go p.serve(near)
	}
}

// sniffed is how many bytes are read before dialing: magic, version and type
// of a preface are among them. An HTTP request is longer, too.
const sniffed = 10

func (p *Proxy) serve(near net.Conn) {
	defer p.wg.Done()
	c := &link{near: near}
	p.mu.Lock()
	p.conns[c] = true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.conns, c)
		c.close()
		p.mu.Unlock()
	}()

	first := make([]byte, sniffed)
	if _, err := io.ReadFull(near, first); err != nil {
		return
	}
	p.mu.Lock()
	c.kind = prefaceType(first)
	p.mu.Unlock()
	for p.dropped(c) { // a SYN that is dropped: the dialer waits
		if !stillOpen(near) {
			return
		}
	}
	far, err := net.DialTimeout("tcp", p.target, 3*time.Second)
	if err != nil {
		return
	}
	p.mu.Lock()
	c.far = far
	p.mu.Unlock()
	if _, err := far.Write(first); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Add(2)
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		go func() {
			defer both.Done()
			p.copy(c, way[0], way[1])
		}()
	}
	both.Wait()
}

// stillOpen waits a little and reports whether the connection is still open, by
// reading: a peer that waits for an answer sends nothing.
func stillOpen(c net.Conn) bool {
	c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	defer c.SetReadDeadline(time.Time{})
	_, err := c.Read(make([]byte, 1))
	timeout, ok := err.(net.Error)
	return ok && timeout.Timeout()
}

func (p *Proxy) copy(c *link, from, to net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 && !p.dropped(c) {
			if _, err := to.Write(buffer[:n]); err != nil {
				p.mu.Lock()
				c.close()
				p.mu.Unlock()
				return
			}
		}
		if err != nil {
			if p.dropped(c) { // a FIN is dropped like any packet
				return
			}
			if half, ok := to.(*net.TCPConn); ok && err == io.EOF {
				half.CloseWrite()
				return
			}
			p.mu.Lock()
			c.close()
			p.mu.Unlock()
			return
		}
	}
}

func (c *link) close() {
	c.near.Close()
	if c.far != nil {
		c.far.Close()
	}
}

// prefaceType returns the type byte of a preface ('R', 'A', 'B', 'F', 'P'), or
// 0 for anything else, such as HTTP.
func prefaceType(first []byte) byte {
	i := bytes.Index(first, []byte("RCMX"))
	if i < 0 || i+5 >= len(first) {
		return 0
	}
	return first[i+5]
}
