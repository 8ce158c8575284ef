package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"rcd/wire"
)

// network is a set of addresses in memory. What stands at an address is a
// dialFunc, so that a test can put anything there, and take it away.
type network struct {
	mu   sync.Mutex
	at   map[string]dialFunc
	asks map[string]int // dials, by address
}

type dialFunc func(ctx context.Context) (net.Conn, error)

func refuse(context.Context) (net.Conn, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

// swallow is a host that drops every packet.
func swallow(ctx context.Context) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// mute takes connections and bytes, and never answers: a stopped process.
func mute(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	go func() { _, _ = io.Copy(io.Discard, there) }()
	return here, nil
}

func newNetwork() *network {
	return &network{at: map[string]dialFunc{}, asks: map[string]int{}}
}

func (n *network) put(address string, d dialFunc) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.at[address] = d
}

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	d := n.at[address]
	n.asks[address]++
	n.mu.Unlock()
	if d == nil {
		return refuse(ctx)
	}
	return d(ctx)
}

func (n *network) dialled(address string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asks[address]
}

// pipeListener hands one end of a net.Pipe to whoever dials.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case l.conns <- there:
		return here, nil
	case <-l.closed:
		return refuse(ctx)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serve puts a controller at an address that answers with h; without an ID it
// is something else than a controller.
func (n *network) serve(t *testing.T, address, id string, h http.HandlerFunc) {
	t.Helper()
	l := &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id != "" {
			w.Header().Set(wire.HeaderInstance, "00000000-0000-4000-8000-000000000000")
			w.Header().Set(wire.HeaderNode, id)
		}
		h(w, r)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { server.Close() })
	n.put(address, l.dial)
}

// client makes one that asks a:1, b:1, c:1 in this order, and collects notices.
func (n *network) client(t *testing.T, o Options) (*Client, *notices) {
	t.Helper()
	seen := &notices{}
	o.Dial, o.Notify = n.dial, seen.add
	if o.Controllers == nil {
		o.Controllers = []string{"a:1", "b:1", "c:1"}
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, seen
}

type notices struct {
	mu   sync.Mutex
	list []Notice
}

func (n *notices) add(notice Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, notice)
}

func (n *notices) all() []Notice {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.list
}

// bubble runs a test in virtual time.
func bubble(t *testing.T, f func(t *testing.T, n *network)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newNetwork()) })
}

func answerJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func answerError(w http.ResponseWriter, status int, code string) {
	answerJSON(w, status, wire.Error{Code: code, Message: "text of " + code})
}

func isAdmin(w http.ResponseWriter, _ *http.Request) {
	answerJSON(w, http.StatusOK, wire.Whoami{Role: "admin"})
}

// hang answers nothing until the client goes away, which the server notices
// only once the body is read.
func hang(_ http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	<-r.Context().Done()
}

// drop takes the request and closes the connection.
func drop(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if conn, _, err := w.(http.Hijacker).Hijack(); err == nil {
		conn.Close()
	}
}

func wantCode(t *testing.T, err error, status int, code string) {
	t.Helper()
	var refusal *APIError
	if !errors.As(err, &refusal) || refusal.Status != status || refusal.Code != code {
		t.Fatalf("error %v, want %d %s", err, status, code)
	}
}

func within(t *testing.T, begun time.Time, most time.Duration) {
	t.Helper()
	if took := time.Since(begun); took > most {
		t.Fatalf("took %v, at most %v allowed", took, most)
	}
}
