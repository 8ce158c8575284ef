package api

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"rcd/relay"
	"rcd/wire"
)

const (
	// spliceSilence is how long the leader's end of a stream that passes
	// through this node may say nothing. It sends a keepalive every 2 s, and
	// the client itself gives up after 5 s: this only clears up behind both.
	spliceSilence = 10 * time.Second

	// clientSilence is how long a client's end may say nothing; each byte from
	// it gives a blocked write as much time again, as in relay.
	clientSilence = 30 * time.Second

	// passBuffer is what is copied at once.
	passBuffer = 64 << 10
)

// passHeaders are those of a leader's answer that this node hands on; the
// others say who answered, and that is this node.
var passHeaders = []string{"Content-Type", "Retry-After", wire.HeaderIndex, wire.HeaderLeader, wire.HeaderLogOffset}

func copyHeaders(w http.ResponseWriter, resp *http.Response) {
	for _, name := range passHeaders {
		if value := resp.Header.Get(name); value != "" {
			w.Header().Set(name, value)
		}
	}
}

// passWhole hands on an answer that is no output.
func (s *server) passWhole(w http.ResponseWriter, resp *http.Response) error {
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxForwardedAnswer))
	if err != nil {
		return err
	}
	copyHeaders(w, resp)
	return s.send(w, reply{status: resp.StatusCode, raw: raw})
}

// passLogs hands on plain output as it comes.
func (s *server) passLogs(w http.ResponseWriter, r *http.Request, resp *http.Response) error {
	if resp.StatusCode != http.StatusOK {
		return s.passWhole(w, resp)
	}
	copyHeaders(w, resp)
	out := newLogWriter(w)
	w.WriteHeader(http.StatusOK)
	if err := out.flush(); err != nil {
		return err
	}
	buf := make([]byte, passBuffer)
	for {
		n, err := resp.Body.Read(buf)
		if n > 0 {
			if _, err := out.Write(buf[:n]); err != nil {
				return err
			}
			if err := out.flush(); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err // breaks the client's answer off, so that it does not look whole
		}
	}
}

// passStream joins the client's connection to the leader's, which speak frames
// to each other; this node does not look into them.
func (s *server) passStream(w http.ResponseWriter, r *http.Request, resp *http.Response) error {
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return s.passWhole(w, resp)
	}
	far := resp.Body.(io.ReadWriteCloser) // net/http promises it for 101; see ownedBody
	copyHeaders(w, resp)
	near, err := relay.Upgrade(w, r)
	if errors.Is(err, relay.ErrUpgradeRequired) {
		return errUpgradeRequired
	}
	takenOver(w)
	if err != nil {
		return err
	}
	splice(r.Context(), near, far)
	return nil
}

// takenOver marks the connection as no longer the server's.
func takenOver(w http.ResponseWriter) {
	if a, ok := w.(*answer); ok {
		a.begun = true
	}
}

// splice copies both ways until either end closes or fails, ctx ends or an end
// is silent for too long; then both are closed and nothing of it runs any more.
func splice(ctx context.Context, near net.Conn, far io.ReadWriteCloser) {
	var once sync.Once
	shut := func() {
		once.Do(func() {
			near.Close()
			far.Close()
		})
	}
	unwatch := context.AfterFunc(ctx, shut)
	silent := time.AfterFunc(spliceSilence, shut)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer shut()
		buf := make([]byte, 4<<10) // acks and keepalives, and of a writer what is typed
		for {
			_ = near.SetReadDeadline(time.Now().Add(clientSilence))
			n, err := near.Read(buf)
			if n > 0 {
				_ = near.SetWriteDeadline(time.Now().Add(clientSilence))
				if _, err := far.Write(buf[:n]); err != nil {
					return
				}
			}
			if n == len(buf) && n < passBuffer { // it writes in bulk
				buf = make([]byte, passBuffer)
			}
			if err != nil {
				return
			}
		}
	}()
	buf := make([]byte, passBuffer)
	for {
		silent.Reset(spliceSilence)
		n, err := far.Read(buf)
		silent.Stop() // a client that holds back is no fault of the leader's
		if n > 0 {
			_ = near.SetWriteDeadline(time.Now().Add(clientSilence))
			if _, err := near.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	shut()
	unwatch()
	<-ended
}
