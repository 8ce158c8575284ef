package controller_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rcd/client"
	"rcd/controller"
	"rcd/jepsen/rig"
	"rcd/wire"
)

// receiver takes webhooks, unless it is down.
type receiver struct {
	*httptest.Server
	down atomic.Bool

	mu  sync.Mutex // guards got and refused
	got []wire.Webhook
	// refused counts those that came while it was down.
	refused int
}

func newReceiver(t *testing.T) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		var body wire.Webhook
		if err := json.NewDecoder(req.Body).Decode(&body); err != nil {
			return // broken off
		}
		if r.down.Load() {
			r.refused++
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		r.got = append(r.got, body)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) reasons() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for _, w := range r.got {
		all = append(all, w.Event+" "+w.Reason)
	}
	return all
}

// TestWebhooksHaveNoGapAcrossDeadLeaders breaks a device again and again while
// each leader in turn is stopped, the receiver down half of the time: every
// fault is told, first told in order, and nothing but the tail before a change
// of leaders is told twice.
func TestWebhooksHaveNoGapAcrossDeadLeaders(t *testing.T) {
	r := newReceiver(t)
	nodes, err := rig.Open(rig.Config{
		Controllers: 3, Dir: t.TempDir(), Network: &rig.Loopback{}, Logger: slog.New(slog.NewTextHandler(testLog{t}, &slog.HandlerOptions{Level: slog.LevelInfo})),
		Change: func(_ string, config *controller.Config, deps *controller.Deps) {
			config.WebhookURL = r.URL
			deps.WebhookPause = 10 * time.Millisecond
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, nodes: nodes}
	var urls, addrs []string
	for _, n := range nodes {
		urls, addrs = append(urls, "http://"+n.HTTP), append(addrs, n.Addr)
	}
	c.host = rig.StartHost(rig.HostConfig{Name: "box", Instance: "i1", Devices: 2, Addresses: addrs, Token: rig.WorkerToken, Logger: slog.New(slog.DiscardHandler)})
	if c.rc, err = client.New(client.Options{Controllers: urls, Token: rig.AdminToken}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.rc.Close()
		c.host.Stop()
		for _, n := range nodes {
			if err := n.Stop(); err != nil {
				t.Errorf("stop %s: %v", n.ID, err)
			}
		}
	})
	const faults = 24
	for i := range faults {
		r.down.Store(i%8 >= 4)
		detail := fmt.Sprintf("XID %02d", i)
		c.eventually("the fault in the table", func() error {
			c.host.Fault(wire.DeviceFault{Device: "gpu0", Detail: detail})
			return c.deviceSays("box:gpu0", detail)
		})
		if leader := rig.Leader(nodes); i%6 == 5 && leader != nil {
			if err := leader.Stop(); err != nil {
				t.Fatal(err)
			}
			c.eventually("another leader", func() error {
				if rig.Leader(nodes) == nil {
					return errors.New("none")
				}
				return nil
			})
			if err := leader.Start(); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.down.Store(false)
	last := fmt.Sprintf("device_unhealthy XID %02d", faults-1)
	c.eventually("the last webhook", func() error {
		if got := r.reasons(); len(got) == 0 || got[len(got)-1] != last {
			return fmt.Errorf("told %q", got)
		}
		return nil
	})
	got := r.reasons()
	next := 0
	for _, text := range got {
		if next < faults && text == fmt.Sprintf("device_unhealthy XID %02d", next) {
			next++
		} else if strings.HasPrefix(text, wire.WebhookGap) {
			t.Errorf("a gap is told: %q", text)
		}
	}
	if next != faults {
		t.Errorf("told %q, which is in order up to %d of %d", got, next, faults)
	}
	if r.refused == 0 {
		t.Error("nothing came while the receiver was down")
	}
	t.Logf("%d webhooks for %d faults", len(got), faults)
}

// deviceSays fails unless the device's detail holds a text.
func (c *cluster) deviceSays(id, text string) error {
	devices, err := c.rc.Devices(context.Background())
	if err != nil {
		return err
	}
	for _, d := range devices {
		if d.Device.ID == id && strings.Contains(d.QuarantineReason, text) {
			return nil
		}
	}
	return fmt.Errorf("%s does not say %q", id, text)
}
