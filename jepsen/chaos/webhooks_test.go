package chaos

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// hooks is a receiver that drops, by their ID, webhooks that it has had, as
// docs/webhooks.md says that one should.
type hooks struct {
	mu    sync.Mutex // guards what follows
	down  bool
	ids   map[string]bool
	told  []string // event and reason, each once, in the order of arrival
	twice int
	bad   []string
}

const webhookSecret = "chaos-webhook-secret"

func (h *hooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil || h.down {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	mac := hmac.New(sha256.New, []byte(webhookSecret))
	fmt.Fprintf(mac, "%s.%s", r.Header.Get("Rc-Webhook-Timestamp"), body)
	if want := "sha256=" + hex.EncodeToString(mac.Sum(nil)); r.Header.Get("Rc-Webhook-Signature") != want {
		h.bad = append(h.bad, fmt.Sprintf("signature of %s", body))
	}
	var hook struct{ Event, Reason, Index string }
	if err := json.Unmarshal(body, &hook); err != nil {
		h.bad = append(h.bad, err.Error())
	}
	if id := r.Header.Get("Rc-Webhook-Id"); h.ids[id] {
		h.twice++
	} else {
		h.ids[id] = true
		h.told = append(h.told, hook.Event+" "+hook.Reason)
	}
}

func (h *hooks) setDown(down bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.down = down
}

// TestWebhooksHaveNoGapAcrossKilledLeaders breaks a device again and again and
// kills the leader in the midst of it, at last all controllers at once, the
// receiver down for a part of the time: every fault arrives, in order, and once
// for a receiver that looks at the IDs.
func TestWebhooksHaveNoGapAcrossKilledLeaders(t *testing.T) {
	h := &hooks{ids: map[string]bool{}}
	receiver := httptest.NewServer(h)
	defer receiver.Close()
	c := Start(t, bin, Options{Controllers: 3, Devices: 1, Env: []string{
		"RC_WEBHOOK_URL=" + receiver.URL, "RC_WEBHOOK_SECRET=" + webhookSecret,
	}})
	const faults = 40
	var want []string
	fault := func() {
		t.Helper()
		detail := fmt.Sprintf("XID %02d", len(want))
		c.Eventually("a fault that is taken", func() error {
			status, body, err := c.Do(c.Leader(), http.MethodPost, "/v1/devices/box:gpu0/fault", "", fmt.Appendf(nil, `{"reason":%q}`, detail))
			if err == nil && status/100 != 2 {
				err = fmt.Errorf("%d %s", status, body)
			}
			return err
		})
		want = append(want, "device_unhealthy "+detail)
	}
	for i := range faults {
		h.setDown(i%20 >= 12)
		fault()
		switch i {
		case 5, 14, 25: // 14: while the receiver is down
			leader := c.Leader()
			leader.End(syscall.SIGKILL)
			fault() // no webhook of it is owed by the dead one
			leader.Start(t)
			c.WaitVoters()
		case 35: // down again
			for _, n := range c.Nodes {
				n.End(syscall.SIGKILL)
			}
			for _, n := range c.Nodes {
				n.Start(t)
			}
			c.Leader()
		}
	}
	h.setDown(false)
	c.Eventually("the last webhook", func() error {
		h.mu.Lock()
		defer h.mu.Unlock()
		if n := len(h.told); n < len(want) {
			return fmt.Errorf("%d of %d were told", n, len(want))
		}
		return nil
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	if got := strings.Join(h.told, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("told\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	if len(h.bad) > 0 {
		t.Errorf("bad webhooks: %q", h.bad)
	}
	t.Logf("%d webhooks, %d of them told twice", len(h.told), h.twice)
}
