package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// UpgradeProtocol is the name under which the frames travel over HTTP/1.1.
const UpgradeProtocol = "rc-stream/1"

const (
	// handshakeWithin bounds each side's part of a handshake, and reading the
	// body of a refusal.
	handshakeWithin = 10 * time.Second

	// maxAnswer bounds what a server may answer instead of upgrading: headers
	// and the JSON of an error.
	maxAnswer = 64 << 10

	// maxInterim is how many 1xx answers may come before the final one.
	maxInterim = 5
)

var (
	// ErrUpgradeRequired says that a request did not ask for rc-stream/1.
	ErrUpgradeRequired = errors.New("request does not ask for an upgrade to " + UpgradeProtocol)

	// ErrNotUpgraded says that a server answered something else than 101.
	ErrNotUpgraded = errors.New("server did not upgrade to " + UpgradeProtocol)
)

// Upgrade answers r with 101 and takes the connection over; frames follow in
// both directions. Headers set on w before are sent along. The connection has
// no deadlines, the caller closes it, and http.Server.Shutdown no longer knows
// it: a server that stops must end the contexts of its streams.
//
// If r does not ask for the upgrade, over HTTP/1.1, nothing has been written
// and the error is ErrUpgradeRequired, so that the caller can still answer
// (426, say). After any other error the connection is gone.
func Upgrade(w http.ResponseWriter, r *http.Request) (net.Conn, error) {
	if !asksUpgrade(r) {
		return nil, ErrUpgradeRequired
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("take over the connection: %w", err)
	}
	var answer strings.Builder
	answer.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	header := w.Header().Clone()
	header.Set("Connection", "Upgrade")
	header.Set("Upgrade", UpgradeProtocol)
	header.Del("Content-Length")
	header.Del("Transfer-Encoding")
	_ = header.Write(&answer) // a strings.Builder does not fail
	answer.WriteString("\r\n")
	_ = conn.SetWriteDeadline(time.Now().Add(handshakeWithin))
	if _, err := io.WriteString(conn, answer.String()); err != nil {
		conn.Close()
		return nil, fmt.Errorf("answer the upgrade: %w", err)
	}
	_ = conn.SetWriteDeadline(time.Time{})
	return withBuffered(conn, buffered.Reader), nil
}

// asksUpgrade reports whether r asks for the protocol in a way that can be
// granted: HTTP/2 has no upgrade.
func asksUpgrade(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.ProtoMinor >= 1 &&
		hasToken(r.Header["Connection"], "upgrade") && hasToken(r.Header["Upgrade"], UpgradeProtocol)
}

// hasToken looks for a token in a header's comma-separated values.
func hasToken(values []string, token string) bool {
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(part), token) {
				return true
			}
		}
	}
	return false
}

// DialUpgrade connects with dial, sends a copy of request that asks for
// rc-stream/1, and returns the connection once the server has answered 101; the
// answer comes along for its headers, and has no body. The request's URL says
// where; for https dial must return a connection that is already TLS. A body
// must be short: the server answers only after it. ctx bounds the dialling and
// the handshake (at most 10 s), not the life of the connection.
//
// If the server answers anything else, the error is ErrNotUpgraded and the
// answer is returned with its body, which the caller reads within 10 s and
// closes. After any other error there is no answer.
func DialUpgrade(ctx context.Context, request *http.Request, dial func(ctx context.Context, network, addr string) (net.Conn, error)) (net.Conn, *http.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeWithin)
	defer cancel()
	conn, err := dial(ctx, "tcp", hostPort(request))
	if err != nil {
		return nil, nil, err
	}
	// Not only the deadline: ctx may be cancelled before.
	unwatch := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	in, response, err := handshake(conn, request.Clone(ctx))
	if !unwatch() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, nil, fmt.Errorf("open stream at %s: %w", request.URL.Host, err)
	}
	if response.StatusCode != http.StatusSwitchingProtocols {
		_ = conn.SetDeadline(time.Now().Add(handshakeWithin))
		response.Body = &bodyAndConn{ReadCloser: response.Body, conn: conn}
		return nil, response, fmt.Errorf("open stream at %s: %w: %s", request.URL.Host, ErrNotUpgraded, response.Status)
	}
	return withBuffered(conn, in), response, nil
}

// handshake sends request and reads the final answer.
func handshake(conn net.Conn, request *http.Request) (*bufio.Reader, *http.Response, error) {
	if request.Header == nil {
		request.Header = http.Header{}
	}
	request.Header.Set("Connection", "Upgrade")
	request.Header.Set("Upgrade", UpgradeProtocol)
	if err := request.Write(conn); err != nil {
		return nil, nil, err
	}
	in := bufio.NewReader(io.LimitReader(conn, maxAnswer))
	for range maxInterim {
		response, err := http.ReadResponse(in, request)
		switch {
		case err != nil:
			return nil, nil, err
		case response.StatusCode == http.StatusSwitchingProtocols && !hasToken(response.Header["Upgrade"], UpgradeProtocol):
			return nil, nil, fmt.Errorf("%w but to %q", ErrNotUpgraded, response.Header.Get("Upgrade"))
		case response.StatusCode == http.StatusSwitchingProtocols, response.StatusCode >= 200:
			return in, response, nil
		}
	}
	return nil, nil, fmt.Errorf("%w: %d interim answers", ErrNotUpgraded, maxInterim)
}

// hostPort returns where request goes, with the scheme's port if it has none.
func hostPort(request *http.Request) string {
	host := request.URL.Host
	if request.URL.Port() != "" {
		return host
	}
	port := "80"
	if request.URL.Scheme == "https" {
		port = "443"
	}
	return net.JoinHostPort(request.URL.Hostname(), port)
}

// bodyAndConn closes the connection with the body that came over it.
type bodyAndConn struct {
	io.ReadCloser
	conn net.Conn
}

func (b *bodyAndConn) Close() error {
	err := b.ReadCloser.Close()
	return errors.Join(err, b.conn.Close())
}

// withBuffered returns conn with what in has already read from it put back.
func withBuffered(conn net.Conn, in *bufio.Reader) net.Conn {
	n := in.Buffered()
	if n == 0 {
		return conn
	}
	early, _ := in.Peek(n) // they are there: it cannot fail
	return &bufferedConn{Conn: conn, early: append([]byte(nil), early...)}
}

// bufferedConn is a connection of which some bytes were read too early.
type bufferedConn struct {
	net.Conn
	early []byte
}

func (c *bufferedConn) Read(p []byte) (int, error) {
	if len(c.early) > 0 && len(p) > 0 {
		n := copy(p, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}
