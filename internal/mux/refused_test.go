package mux

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestAPeerThatIsRefusedAgainAndAgainIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		l, d := rig(t, func(c *Config, d *Dialer) {
			c.Logger = slog.New(slog.NewTextHandler(&text, nil))
			d.Key.Secret = []byte("guess")
		})
		l.Channel(Raft)
		for range 5 * 90 { // a minute and a half
			if _, err := d.Dial(context.Background(), "c1", Raft); !errors.Is(err, ErrUnauthorized) {
				t.Fatal(err)
			}
			time.Sleep(200 * time.Millisecond)
		}
		d.Key = clusterKey
		if _, err := d.Dial(context.Background(), "c1", Forward); !errors.Is(err, ErrNotServed) {
			t.Fatal(err)
		}
		synctest.Wait()
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if len(lines) != 3 || strings.Contains(lines[0], "not_logged") || !strings.Contains(lines[1], "not_logged=299") || strings.Contains(lines[2], "not_logged") {
			t.Errorf("%d lines:\n%s", len(lines), &text)
		}
	})
}

func TestRefusalsOfManyHostsAreBounded(t *testing.T) {
	var text bytes.Buffer
	r := newRefusalLog(slog.New(slog.NewTextHandler(&text, nil)))
	now := time.Now()
	refuse := func(host int, port int, err error) {
		r.refused(&net.TCPAddr{IP: net.IPv4(10, 0, byte(host>>8), byte(host)), Port: port}, err, now)
	}
	for host := range 10 * maxReasons {
		refuse(host, host, &refusal{statusUnauthorized, "no"})
	}
	if n := strings.Count(text.String(), "\n"); n != maxReasons+1 || len(r.seen) != maxReasons+1 {
		t.Errorf("%d lines, %d kept, want %d", n, len(r.seen), maxReasons+1)
	}
	now = now.Add(repeatAfter)
	text.Reset()
	for port := range 9 {
		refuse(9*maxReasons, port, fmt.Errorf("handshake: %w", &net.OpError{
			Op: "read", Net: "tcp", Addr: &net.TCPAddr{Port: port}, Err: syscall.ECONNRESET,
		}))
	}
	if n := strings.Count(text.String(), "\n"); n != 1 || len(r.seen) != 1 {
		t.Errorf("%d lines, %d kept, after a minute:\n%s", n, len(r.seen), &text)
	}
}
