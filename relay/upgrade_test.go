package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"rcd/wire"
)

var dialer net.Dialer

func get(t *testing.T, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestStreamRunsOverAnUpgradedConnection(t *testing.T) {
	recorded := newTape(rand.New(rand.NewPCG(41, 41)), 2000)
	sent := make(chan error, 8)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Rc-Index", "42")
		conn, err := Upgrade(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		sent <- Send(context.WithoutCancel(r.Context()), conn, 0, recorded.open(0), SendOptions{})
	}))
	// The server's deadlines are for requests and must not reach the stream.
	server.Config.ReadTimeout, server.Config.WriteTimeout = 50*time.Millisecond, 50*time.Millisecond
	recorded.pause = func(i int) time.Duration {
		if i == 1000 {
			return 120 * time.Millisecond
		}
		return 0
	}
	server.Start()
	defer server.Close()

	request := get(t, server.URL+"/stream?offset=0")
	request.Header.Set("Authorization", "Bearer x")
	conn, response, err := DialUpgrade(t.Context(), request, dialer.DialContext)
	if err != nil || response.Header.Get("Rc-Index") != "42" {
		t.Fatalf("%v, %v", response, err)
	}
	if request.Header.Get("Upgrade") != "" {
		t.Error("the caller's request was changed")
	}
	sink := &deck{}
	if _, _, err := Receive(t.Context(), conn, 0, sink); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err != nil {
		t.Errorf("Send: %v", err)
	}
	sink.check(t, recorded, 0)
}

// What follows the handshake in the same packet was read with it.
func TestUpgradeLosesNoByteThatCameEarly(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := Upgrade(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		frame, err := wire.ReadFrame(conn, nil)
		if err != nil || frame.Offset != 7 {
			t.Errorf("the server got %+v, %v", frame, err)
		}
		// And the rest of what was early, however small the reads.
		if rest, err := io.ReadAll(io.LimitReader(conn, 5)); err != nil || string(rest) != "early" {
			t.Errorf("the server got %q, %v", rest, err)
		}
	}))
	defer server.Close()
	conn, err := dialer.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	frame, _ := wire.AppendFrame(nil, wire.AckFrame(wire.StreamNone, 7, wire.StreamAck{}))
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\nUpgrade: RC-Stream/1\r\n\r\n%searly", frame)
	if all, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 101 ") {
		t.Errorf("%q, %v", all, err)
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		c, err := listener.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = c.Read(make([]byte, 4096))
		_, _ = io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: rc-stream/1\r\n\r\n"+strings.Repeat("early", 100_000))
	}()
	early, _, err := DialUpgrade(t.Context(), get(t, "http://"+listener.Addr().String()), dialer.DialContext)
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	if all, err := io.ReadAll(early); err != nil || string(all) != strings.Repeat("early", 100_000) {
		t.Errorf("the client got %d bytes, %v", len(all), err)
	}
}

func TestUpgradeThatIsNotAskedForLeavesTheAnswerToTheCaller(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := Upgrade(w, r); !errors.Is(err, ErrUpgradeRequired) {
			t.Errorf("%v for %v", err, r.Header)
		}
		w.WriteHeader(http.StatusUpgradeRequired)
	}))
	defer server.Close()
	for _, headers := range []map[string]string{
		{},
		{"Upgrade": UpgradeProtocol},
		{"Connection": "Upgrade"},
		{"Connection": "Upgrade", "Upgrade": "websocket"},
		{"Connection": "Upgrade", "Upgrade": "rc-stream/2"},
		{"Connection": "close", "Upgrade": UpgradeProtocol},
	} {
		r := get(t, server.URL)
		for k, v := range headers {
			r.Header.Set(k, v)
		}
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusUpgradeRequired {
			t.Errorf("%v: %s", headers, response.Status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestDialUpgradeGivesARefusalBackWithItsBody(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error":{"code":"not_found"}}`)
	}))
	defer server.Close()
	conn, response, err := DialUpgrade(t.Context(), get(t, server.URL), dialer.DialContext)
	if conn != nil || !errors.Is(err, ErrNotUpgraded) || response == nil || response.StatusCode != http.StatusNotFound {
		t.Fatalf("%v, %+v, %v", conn, response, err)
	}
	var body struct{ Error struct{ Code string } }
	if err := json.NewDecoder(response.Body).Decode(&body); err != nil || body.Error.Code != "not_found" {
		t.Errorf("%+v, %v", body, err)
	}
	if err := response.Body.Close(); err != nil {
		t.Error(err)
	}
}

func TestDialUpgradeTrustsNoStrangeServer(t *testing.T) {
	for name, answer := range map[string]string{
		"another protocol": "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"no http":          "SSH-2.0-OpenSSH_9.6\r\n",
		"hangs up":         "",
		"endless header":   "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 2*maxAnswer),
		"endless interim":  strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100),
	} {
		t.Run(name, func(t *testing.T) {
			near, far := net.Pipe()
			go func() {
				defer far.Close()
				_, _ = far.Read(make([]byte, 4096))
				if _, err := io.WriteString(far, answer); err == nil && len(answer) > maxAnswer {
					t.Error("the client read it all")
				}
			}()
			conn, response, err := DialUpgrade(t.Context(), get(t, "http://c1.invalid"), func(_ context.Context, _, addr string) (net.Conn, error) {
				if addr != "c1.invalid:80" {
					t.Errorf("dialled %s", addr)
				}
				return near, nil
			})
			if conn != nil || response != nil || err == nil {
				t.Fatalf("%v, %v, %v", conn, response, err)
			}
			if _, err := near.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("the connection is still open: %v", err)
			}
		})
	}
}

func TestDialUpgradeWaitsNoLongerThanItsContext(t *testing.T) {
	near, far := net.Pipe()
	defer far.Close()
	go func() { _, _ = io.Copy(io.Discard, far) }()
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(gone) })
	_, _, err := DialUpgrade(ctx, get(t, "http://c1.invalid"), func(context.Context, string, string) (net.Conn, error) { return near, nil })
	if !errors.Is(err, gone) || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestUpgradedConnectionOutlivesTheDialContext(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := Upgrade(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.Copy(conn, conn)
		conn.Close()
	}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	conn, _, err := DialUpgrade(ctx, get(t, server.URL), dialer.DialContext)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := conn.Write([]byte("echo")); err != nil {
		t.Fatal(err)
	}
	echo := make([]byte, 4)
	if _, err := io.ReadFull(conn, echo); err != nil || string(echo) != "echo" {
		t.Errorf("%q, %v", echo, err)
	}
	conn.Close()
}
