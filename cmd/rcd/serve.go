package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"rcd/agent/proc"
	"rcd/controller"
	"rcd/controller/copies"
	"rcd/internal/sdnotify"
	"rcd/raftnode"
)

type serveCmd struct {
	Data              string   `required:"" type:"path" placeholder:"DIR" help:"Directory of this controller's log, snapshots and identity."`
	ID                string   `required:"" placeholder:"ID" help:"Stable name of this controller in the cluster, such as c1."`
	Listen            string   `required:"" placeholder:"HOST:PORT" help:"Address for other controllers and agents."`
	HTTP              string   `name:"http" required:"" placeholder:"HOST:PORT" help:"Address of the HTTP API."`
	BootstrapExpect   int      `default:"0" placeholder:"N" help:"Form a cluster of N controllers when there is none yet (1, 3 or 5)."`
	Join              []string `placeholder:"ID=HOST:PORT,…" help:"Every controller of the cluster, this one included, the same list on each."`
	EventsTokenURL    bool     `name:"events-token-in-url" help:"Accept a token in the URL of /v1/events, for browsers; URLs end up in logs and histories."`
	WebhookURL        string   `name:"webhook-url" env:"RC_WEBHOOK_URL" placeholder:"URL" help:"POST here what befalls devices and jobs; give each controller the same. Default: $$RC_WEBHOOK_URL."`
	WebhookSecretFile string   `name:"webhook-secret-file" type:"path" placeholder:"FILE" help:"File with the secret that signs webhooks, at least 16 bytes."`
	OutputCopies      string   `name:"output-copies" default:"20%" placeholder:"SIZE" help:"Disk for copies of jobs' output in the data directory: a part of it (20%), bytes (500G) or 0. The oldest go first; below 2 GiB or 10% of free space nothing is copied."`
	RaftMultiplier    float64  `default:"1" placeholder:"X" help:"Scale Raft's timing (heartbeat 500 ms, election 500 ms, lease 250 ms)."`
}

// Help is shown by rcd serve --help.
func (serveCmd) Help() string {
	return `Credentials come from the environment; nothing starts without them:
  RC_TOKENS          token:role,…  with the roles client, worker and admin
  RCD_CLUSTER_KEY    the secret that the controllers share, at least 16 bytes
  RC_WEBHOOK_SECRET  signs webhooks, unless --webhook-secret-file does; may be left out

Examples:
  One controller:
    rcd serve --data /var/lib/rcd --id c1 --listen 10.0.0.1:7401 --http 10.0.0.1:8080 --bootstrap-expect 1

  Three, the same list on each:
    rcd serve --data /var/lib/rcd --id c1 --listen 10.0.0.1:7401 --http 10.0.0.1:8080 \
      --bootstrap-expect 3 --join c1=10.0.0.1:7401,c2=10.0.0.2:7401,c3=10.0.0.3:7401

Starting again with the same flags changes nothing.`
}

func (c *serveCmd) Run(s *session) error {
	hideSecrets(s.logger)
	supervisor := newSupervisor(s.logger)
	join, err := parseJoin(c.Join)
	if err != nil {
		return err
	}
	limit, err := copies.ParseLimit(c.OutputCopies)
	if err != nil {
		return fmt.Errorf("--output-copies: %w", err)
	}
	secret, err := c.webhookSecret()
	if err != nil {
		return err
	}
	node, err := controller.New(controller.Config{
		NodeID:           c.ID,
		DataDir:          c.Data,
		Listen:           c.Listen,
		HTTP:             c.HTTP,
		BootstrapExpect:  c.BootstrapExpect,
		Join:             join,
		RaftMultiplier:   c.RaftMultiplier,
		EventsTokenInURL: c.EventsTokenURL,
		WebhookURL:       c.WebhookURL,
		WebhookSecret:    secret,
		OutputCopies:     limit,
		Tokens:           os.Getenv("RC_TOKENS"),
		ClusterKey:       os.Getenv("RCD_CLUSTER_KEY"),
		Version:          version,
	}, controller.Deps{Logger: s.logger})
	if err != nil {
		return err
	}
	remove, err := proc.WritePIDFile(filepath.Join(c.Data, proc.PIDFile))
	if err != nil {
		return errors.Join(err, node.Close())
	}
	defer remove()
	supervisor.say(sdnotify.Ready)
	defer supervisor.say(sdnotify.Stopping)
	return node.Run(s.ctx)
}

var errSecretAlone = errors.New("--webhook-secret-file signs nothing without --webhook-url; give both or neither")

var errJoin = errors.New("--join wants ID=HOST:PORT pairs, such as --join c1=10.0.0.1:7401,c2=10.0.0.2:7401")

func parseJoin(pairs []string) ([]raftnode.Peer, error) {
	var peers []raftnode.Peer
	for _, pair := range pairs {
		if pair == "" {
			continue
		}
		id, addr, ok := strings.Cut(pair, "=")
		if !ok || id == "" || addr == "" {
			return nil, fmt.Errorf("%w (not %q)", errJoin, pair)
		}
		peers = append(peers, raftnode.Peer{ID: id, Addr: addr})
	}
	return peers, nil
}

// webhookSecret returns what signs webhooks, "" when nothing does.
func (c *serveCmd) webhookSecret() (string, error) {
	if c.WebhookSecretFile == "" {
		return os.Getenv("RC_WEBHOOK_SECRET"), nil
	}
	if c.WebhookURL == "" {
		return "", errSecretAlone
	}
	raw, err := os.ReadFile(c.WebhookSecretFile)
	if err != nil {
		return "", fmt.Errorf("read --webhook-secret-file: %w", err)
	}
	secret := strings.TrimRight(string(raw), "\r\n")
	if secret == "" {
		return "", fmt.Errorf("--webhook-secret-file %s is empty; put a secret of at least 16 bytes into it, for example from: openssl rand -hex 32", c.WebhookSecretFile)
	}
	return secret, nil
}
