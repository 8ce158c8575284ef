package controller

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"rcd/api"
	"rcd/raftnode"
)

// webhooksFile is the outbox in the data directory. Its format is an
// api.WebhookLedger, which only grows.
const webhooksFile = "webhooks.json"

// Times of webhooks.
const (
	webhookDeadline   = 10 * time.Second // of one try
	webhookFirstPause = time.Second      // after a failed try, doubled after each
	webhookLastPause  = time.Minute      // up to this
	webhookFlush      = 5 * time.Second  // what a stop waits for those that are owed
	webhookKeepEvery  = time.Second      // at most so often is the outbox written
	webhookAskPeers   = 2 * time.Second  // what a new leader waits for the others' word
)

// minWebhookSecret is the fewest bytes of a secret: below that it can be
// guessed from one signature.
const minWebhookSecret = 16

var (
	errWebhookURL    = errors.New("the webhook URL must begin with http:// or https:// and name a host, for example https://alerts.example.com/rc")
	errWebhookSecret = errors.New("the webhook secret is too short; it needs at least 16 bytes, for example from: openssl rand -hex 32")
)

// webhooks sends what happens to devices and jobs to a URL, from the leader,
// and keeps on every node what is owed.
type webhooks struct {
	url      string
	secret   []byte
	client   *http.Client
	outbox   *outbox
	path     string
	log      *slog.Logger
	deadline time.Duration
	pause    time.Duration // the first

	saving sync.Mutex // held while the file is written
	saved  uint64     // the outbox's edits in the file; guarded by saving

	mu      sync.Mutex // guards failing
	failing error      // of the last try; nil after one that was taken
}

// checkWebhooks refuses what can never work.
func (c Config) checkWebhooks() error {
	if c.WebhookURL == "" {
		return nil
	}
	to, err := url.Parse(c.WebhookURL)
	if err != nil || (to.Scheme != "http" && to.Scheme != "https") || to.Hostname() == "" {
		return errWebhookURL
	}
	if c.WebhookSecret != "" && len(c.WebhookSecret) < minWebhookSecret {
		return errWebhookSecret
	}
	return nil
}

// newWebhooks returns nil when there is no URL. fresh says that the data
// directory belongs to no cluster yet, so that everything is owed.
func newWebhooks(config Config, deps Deps, fresh bool) *webhooks {
	if config.WebhookURL == "" {
		return nil
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = 64 << 10
	w := &webhooks{
		url: config.WebhookURL, secret: []byte(config.WebhookSecret), log: deps.Logger.With("node", config.NodeID),
		path: filepath.Join(config.DataDir, webhooksFile), deadline: webhookDeadline, pause: cmp.Or(deps.WebhookPause, webhookFirstPause),
		client: &http.Client{
			Transport: transport,
			// Elsewhere is not where the operator said.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	kept, err := readLedger(w.path)
	if err != nil {
		// A controller must not stay down for this, and must not take for sent
		// what may not be.
		w.log.Error("what is known of webhooks cannot be read; they are sent again as far as they are known", "err", err)
		kept = &api.WebhookLedger{Version: api.WebhookVersion}
	}
	w.outbox = newOutbox(kept)
	if fresh {
		w.outbox.begin(api.Place{})
	}
	return w
}

// readLedger returns nil when there is none.
func readLedger(path string) (*api.WebhookLedger, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what is owed of webhooks: %w", err)
	}
	var kept api.WebhookLedger
	if err := json.Unmarshal(raw, &kept); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", path, err)
	}
	if kept.Version != api.WebhookVersion {
		return nil, fmt.Errorf("%s has version %d, this build reads %d", path, kept.Version, api.WebhookVersion)
	}
	return &kept, nil
}

// save writes the outbox, unless the file has it. always is for what no change
// of what is owed tells: how far the log was looked through.
func (w *webhooks) save(always bool) error {
	w.saving.Lock()
	defer w.saving.Unlock()
	ledger, edits, _ := w.outbox.copied()
	if edits == w.saved && !always {
		return nil
	}
	var raw bytes.Buffer
	out := json.NewEncoder(&raw)
	out.SetIndent("", " ")
	err := out.Encode(ledger)
	if err == nil {
		err = raftnode.WriteFileAtomic(w.path, raw.Bytes())
	}
	if err != nil {
		return fmt.Errorf("write what is owed of webhooks: %w", err)
	}
	w.saved = edits
	return nil
}

// keep writes the outbox after each change, until ctx ends, and then once more.
func (w *webhooks) keep(ctx context.Context) {
	for ctx.Err() == nil {
		_, _, moved := w.outbox.copied()
		if err := w.save(false); err != nil {
			w.log.Warn("after a restart webhooks may be sent twice", "err", err)
		}
		select {
		case <-moved:
		case <-ctx.Done():
		}
		select {
		case <-time.After(webhookKeepEvery):
		case <-ctx.Done():
		}
	}
	if err := w.save(true); err != nil {
		w.log.Warn("after a restart webhooks may be sent twice", "err", err)
	}
	w.client.CloseIdleConnections()
}

// failed returns why the last try was not taken.
func (w *webhooks) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failing
}

func (w *webhooks) setFailed(err error) {
	w.mu.Lock()
	w.failing = err
	w.mu.Unlock()
	if err != nil {
		w.outbox.nudge() // a stop that waits need not wait any longer
	}
}

// flush waits until nothing is owed, for a few seconds, or until lost says that
// this node leads no more. A receiver that refuses is not waited for: what is
// owed is on disk, and other controllers have it.
func (w *webhooks) flush(lost <-chan struct{}) {
	late := time.NewTimer(webhookFlush)
	defer late.Stop()
	for {
		_, owed, moved := w.outbox.next()
		if !owed || w.failed() != nil {
			return
		}
		select {
		case <-moved:
		case <-lost:
			return
		case <-late.C:
			return
		}
	}
}

// Webhooks implements api.Internal.
func (c *Controller) Webhooks() api.WebhookLedger {
	if c.webhooks == nil {
		return api.WebhookLedger{}
	}
	ledger, _, _ := c.webhooks.outbox.copied()
	return ledger
}

// keptSnapshot is a snapshot before which the outbox is written: what a log
// that is cut off had told must be there after a restart.
type keptSnapshot struct {
	raftnode.Snapshot
	webhooks *webhooks
}

func (s keptSnapshot) WriteTo(to io.Writer) (int64, error) {
	if err := s.webhooks.save(true); err != nil {
		return 0, err
	}
	return s.Snapshot.WriteTo(to)
}
