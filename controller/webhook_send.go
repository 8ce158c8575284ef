package controller

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"rcd/api"
	"rcd/wire"
)

// sendWebhooks is a leader's duty, until ctx ends.
func (c *Controller) sendWebhooks(ctx context.Context) {
	c.webhooks.outbox.takeOver(c.askWebhooks(ctx))
	defer c.webhooks.outbox.leads(false)
	c.deliverWebhooks(ctx)
}

// deliverWebhooks sends what is owed, one after the other and each until it is
// taken, until ctx ends.
func (c *Controller) deliverWebhooks(ctx context.Context) {
	w := c.webhooks
	w.setFailed(nil) // of an earlier epoch
	defer c.alarms.end(wire.AlarmWebhooks)
	pause, failing := w.pause, time.Time{}
	for ctx.Err() == nil {
		next, owed, moved := w.outbox.next()
		if !owed {
			select {
			case <-moved:
			case <-ctx.Done():
			}
			continue
		}
		body, id := c.webhookOf(next)
		err := w.post(ctx, body, id)
		if ctx.Err() != nil && err != nil {
			return // the next leader sends it
		}
		w.setFailed(err)
		if err == nil {
			w.outbox.sent(next.ID)
			c.alarms.end(wire.AlarmWebhooks)
			pause, failing = w.pause, time.Time{}
			continue
		}
		c.log.Warn("a webhook was not taken; it is tried again", "event", next.Event, "id", next.ID, "in", pause, "err", err)
		if failing.IsZero() {
			failing = time.Now()
		} else if time.Since(failing) >= alarmEvery {
			c.tellWebhooksWait(err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, webhookLastPause)
	}
}

// tellWebhooksWait raises the alarm that an operator sees.
func (c *Controller) tellWebhooksWait(why error) {
	n, sinceMS := c.webhooks.outbox.waiting()
	since := time.UnixMilli(sinceMS)
	if sinceMS == 0 {
		since = c.now(c.machine.View()) // a gap of unknown age
	}
	c.alarms.raise(wire.AlarmWebhooks, since, fmt.Sprintf(
		"%d webhooks wait, because the webhook URL takes none (%v). Mend what answers there, or start the controllers with another --webhook-url; up to %d are kept, then the oldest are lost.",
		n, why, maxOwed))
}

// askWebhooks asks the other controllers what they know of webhooks. One that
// does not answer within webhookAskPeers is left out: at the worst what it
// knows to be sent is sent again.
func (c *Controller) askWebhooks(ctx context.Context) []api.WebhookLedger {
	ctx, cancel := context.WithTimeout(ctx, webhookAskPeers)
	defer cancel()
	var (
		mu      sync.Mutex // guards answers
		answers []api.WebhookLedger
		asked   sync.WaitGroup
	)
	for _, m := range c.node.Members() {
		if m.ID == c.config.NodeID {
			continue
		}
		asked.Go(func() {
			ledger, err := c.peerClient.Webhooks(ctx, m.ID)
			if err != nil {
				c.log.Debug("ask for webhooks", "controller", m.ID, "err", err)
				return
			}
			if ledger.Version != api.WebhookVersion {
				return // it sends none
			}
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, ledger)
		})
	}
	asked.Wait()
	return answers
}

// webhookOf is the body of a webhook, and its ID.
func (c *Controller) webhookOf(o api.OwedWebhook) (body wire.Webhook, id string) {
	body = wire.Webhook{
		Event: o.Event, Device: o.Device, Job: o.Job, Reason: o.Reason,
		At: time.UnixMilli(o.AtMS).UTC(), Index: o.ID.String(),
	}
	if o.From == nil {
		return body, body.Index
	}
	if o.AtMS == 0 {
		body.At = c.now(c.machine.View()).UTC()
	}
	body.From = o.From.String()
	body.Reason = "webhooks of events above " + body.From + " up to " + body.Index + " are lost; look at the devices and jobs themselves"
	return body, "gap-" + body.From + "-" + body.Index
}

// post makes one try. The error does not name the URL, which may be a secret.
func (w *webhooks) post(ctx context.Context, body wire.Webhook, id string) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, w.deadline)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(raw))
	if err != nil {
		return errWebhookURL
	}
	stamp := strconv.FormatInt(time.Now().Unix(), 10)
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "rcd")
	r.Header.Set(wire.HeaderWebhookID, id)
	r.Header.Set(wire.HeaderWebhookTimestamp, stamp)
	if len(w.secret) > 0 {
		r.Header.Set(wire.HeaderWebhookSignature, signature(w.secret, stamp, raw))
	}
	resp, err := w.client.Do(r)
	if err != nil {
		if named := (*url.Error)(nil); errors.As(err, &named) {
			err = named.Err
		}
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection serves again
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return fmt.Errorf("it answered %s", resp.Status)
	}
	return nil
}

// signature lets the receiver tell that a webhook is from here and when it was
// sent, so that an old one is of no use to others.
func signature(secret []byte, stamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(stamp + "."))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}
