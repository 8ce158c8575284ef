package controller

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"rcd/api"
	"rcd/wire"
)

var quiet = slog.New(slog.DiscardHandler)

// sender is a webhooks that posts to a handler.
func sender(t *testing.T, secret string, handler http.HandlerFunc) *webhooks {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	w := newWebhooks(Config{DataDir: t.TempDir(), WebhookURL: server.URL + "/hook?key=hidden", WebhookSecret: secret}, Deps{Logger: quiet}, true)
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

func TestAWebhookIsWhatTheSpecSaysAndSigned(t *testing.T) {
	const secret = "a-secret-of-good-length"
	var got *http.Request
	var body []byte
	w := sender(t, secret, func(_ http.ResponseWriter, r *http.Request) {
		got = r
		body, _ = io.ReadAll(r.Body)
	})
	c := &Controller{}
	message, id := c.webhookOf(api.OwedWebhook{ID: api.PlaceOf(1, 40, 2), Event: wire.WebhookWorkerLost, Device: "box:gpu0", Reason: "silent", AtMS: 1_700_000_000_250})
	if err := w.post(t.Context(), message, id); err != nil {
		t.Fatal(err)
	}
	if want := `{"event":"worker_lost","device":"box:gpu0","job":"","reason":"silent","at":"2023-11-14T22:13:20.25Z","index":"1-40-2"}`; string(body) != want {
		t.Errorf("body\n%s\nwant\n%s", body, want)
	}
	h := got.Header
	if h.Get("Content-Type") != "application/json" || h.Get("Rc-Webhook-Id") != "1-40-2" || got.Method != "POST" {
		t.Errorf("%s with %v", got.Method, h)
	}
	if sign := signature([]byte(secret), h.Get("Rc-Webhook-Timestamp"), body); h.Get("Rc-Webhook-Timestamp") == "" || h.Get("Rc-Webhook-Signature") != sign {
		t.Errorf("signed %q, want %q", h.Get("Rc-Webhook-Signature"), sign)
	}
	// From an independent tool: printf '1700000000.{}' | openssl dgst -sha256 -hmac a-secret-of-good-length
	if sign := signature([]byte(secret), "1700000000", []byte("{}")); sign != "sha256=a1ca6b07a52d91349bc2120f6d5f228742422cb437f1834d7173614a0be0b5c2" {
		t.Errorf("a signature is %s", sign)
	}
	from := api.PlaceAfter(1, 3)
	message, id = c.webhookOf(api.OwedWebhook{ID: api.PlaceAfter(1, 9), From: &from, Event: wire.WebhookGap, AtMS: 1})
	if raw, _ := json.Marshal(message); id != "gap-1-3-1-9" || !strings.Contains(string(raw), `"index":"1-9","from":"1-3"`) || message.Reason == "" {
		t.Errorf("a gap is %s with ID %s", raw, id)
	}
}

func TestAWebhookThatIsNotTakenIsAFailureThatHidesTheURL(t *testing.T) {
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		says    string
	}{
		"an error":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "500"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", 307) }, "307"},
		"no answer":  {func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); <-r.Context().Done() }, "deadline"},
		"no end":     {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			w := sender(t, "", test.handler)
			if name == "no answer" {
				w.deadline = 50 * time.Millisecond
			}
			err := w.post(t.Context(), wire.Webhook{}, "1-1-0")
			if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "hidden") {
				t.Errorf("the error is %v", err)
			}
		})
	}
}

func TestAStopWaitsForWebhooksOnlyWhileTheyAreTaken(t *testing.T) {
	w := sender(t, "", nil)
	w.outbox.take([]api.OwedWebhook{{ID: api.PlaceOf(1, 1, 0)}}, api.PlaceAfter(1, 1))
	done := make(chan struct{})
	go func() { w.flush(nil); close(done) }()
	w.outbox.sent(api.PlaceOf(1, 1, 0))
	<-done
	w.outbox.take([]api.OwedWebhook{{ID: api.PlaceOf(1, 2, 0)}}, api.PlaceAfter(1, 2))
	w.setFailed(errors.New("refused"))
	begun := time.Now()
	w.flush(nil)
	if waited := time.Since(begun); waited >= webhookFlush {
		t.Errorf("it waited %v for a receiver that refuses", waited)
	}
}

func TestWebhookSettingsThatCanNeverWorkAreRefused(t *testing.T) {
	for to, ok := range map[string]bool{
		"": true, "https://a.example/x": true, "http://127.0.0.1:1": true,
		"ftp://a": false, "https://": false, "alerts": false, "http://a b": false,
	} {
		if err := (Config{WebhookURL: to}).checkWebhooks(); (err == nil) != ok {
			t.Errorf("%q: %v", to, err)
		}
	}
	if err := (Config{WebhookURL: "http://a", WebhookSecret: "short"}).checkWebhooks(); !errors.Is(err, errWebhookSecret) {
		t.Errorf("a short secret: %v", err)
	}
}

// TestWhatIsOwedIsOnDiskBeforeALogIsCutOff: nothing tells it any more then.
func TestWhatIsOwedIsOnDiskBeforeALogIsCutOff(t *testing.T) {
	w := sender(t, "", nil)
	w.outbox.take([]api.OwedWebhook{{ID: api.PlaceOf(1, 4, 0), Event: "worker_lost"}}, api.PlaceAfter(1, 4))
	w.outbox.take(nil, api.PlaceAfter(1, 9))
	machine := tableOf(t)
	if _, err := (keptSnapshot{machine.Snapshot(), w}).WriteTo(io.Discard); err != nil {
		t.Fatal(err)
	}
	kept, err := readLedger(w.path)
	if err != nil || kept == nil {
		t.Fatal(kept, err)
	}
	again := newOutbox(kept)
	again.skip(api.PlaceAfter(1, 9), 0) // the snapshot
	if next, _, _ := again.next(); next.ID != api.PlaceOf(1, 4, 0) || len(again.ledger.Owed) != 1 {
		t.Errorf("after a restart %+v is owed", again.ledger.Owed)
	}
}

// TestTheOutboxIsWrittenWhenTheControllerStops even if nothing waits for it.
func TestTheOutboxIsWrittenWhenTheControllerStops(t *testing.T) {
	w := sender(t, "", nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { w.keep(ctx); close(done) }()
	w.outbox.sent(api.PlaceOf(1, 7, 0))
	cancel()
	<-done
	if kept, err := readLedger(w.path); err != nil || kept == nil || kept.Sent != api.PlaceOf(1, 7, 0) {
		t.Errorf("kept is %+v, %v", kept, err)
	}
}
