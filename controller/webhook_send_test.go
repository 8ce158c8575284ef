package controller

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rcd/api"
	"rcd/wire"
)

// tries is a transport that refuses for a while.
type tries struct {
	begun time.Time
	until time.Duration // refused until
	at    []time.Duration
	took  []string
}

func (f *tries) RoundTrip(r *http.Request) (*http.Response, error) {
	after := time.Since(f.begun)
	f.at = append(f.at, after)
	if after < f.until {
		return nil, errors.New("connection refused")
	}
	var body wire.Webhook
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		return nil, err
	}
	f.took = append(f.took, body.Index)
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody, Request: r}, nil
}

// TestAWebhookIsTriedUntilItIsTaken, with longer and longer pauses, and an
// alarm after a minute that ends with the first success.
func TestAWebhookIsTriedUntilItIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWebhooks(Config{DataDir: t.TempDir(), WebhookURL: "http://alerts.example"}, Deps{Logger: quiet}, true)
		f := &tries{begun: time.Now(), until: 5 * time.Minute}
		w.client.Transport = f
		c := &Controller{webhooks: w, log: quiet, machine: tableOf(t)}
		for i := uint64(1); i <= 3; i++ {
			w.outbox.take([]api.OwedWebhook{{ID: api.PlaceOf(1, i, 0), AtMS: 1}}, api.PlaceAfter(1, i))
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.deliverWebhooks(ctx); close(done) }()
		time.Sleep(50 * time.Second)
		if alarms := c.alarms.list(); len(alarms) != 0 {
			t.Errorf("alarms after 50 s: %v", alarms)
		}
		time.Sleep(100 * time.Second)
		alarms := c.alarms.list()
		if len(alarms) != 1 || alarms[0].Code != wire.AlarmWebhooks || !strings.HasPrefix(alarms[0].Message, "3 webhooks wait, because the webhook URL takes none (connection refused).") {
			t.Errorf("alarms after 150 s: %v", alarms)
		}
		time.Sleep(5 * time.Minute)
		if alarms := c.alarms.list(); len(alarms) != 0 {
			t.Errorf("alarms at the end: %v", alarms)
		}
		if !slices.Equal(f.took, []string{"1-1-0", "1-2-0", "1-3-0"}) {
			t.Errorf("taken were %q", f.took)
		}
		var pauses []string
		for i := 1; i < len(f.at)-2; i++ {
			pauses = append(pauses, (f.at[i] - f.at[i-1]).String())
		}
		if want := []string{"1s", "2s", "4s", "8s", "16s", "32s", "1m0s", "1m0s", "1m0s", "1m0s"}; !slices.Equal(pauses, want) {
			t.Errorf("pauses were %q, want %q", pauses, want)
		}
		cancel()
		<-done
	})
}

// TestALeaderThatLosesItsEpochLeavesTheWebhookToTheNext: what was broken off is
// not taken for sent.
func TestALeaderThatLosesItsEpochLeavesTheWebhookToTheNext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w := sender(t, "", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the server does not see that it is broken off
		cancel()
		<-r.Context().Done()
	})
	c := &Controller{webhooks: w, log: quiet}
	w.outbox.take([]api.OwedWebhook{{ID: api.PlaceOf(1, 1, 0)}}, api.PlaceAfter(1, 1))
	c.deliverWebhooks(ctx)
	if n, _ := w.outbox.waiting(); n != 1 || w.failed() != nil {
		t.Errorf("%d are owed, the last failure %v", n, w.failed())
	}
}
