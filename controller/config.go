package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
	"unicode/utf8"

	"rcd/api"
	"rcd/controller/copies"
	"rcd/fsm"
	"rcd/internal/mux"
	"rcd/raftnode"
)

// Config is what a controller is started with.
type Config struct {
	NodeID          string
	DataDir         string
	Listen          string // other controllers and agents
	HTTP            string // the API
	BootstrapExpect int
	Join            []raftnode.Peer // every controller, this one included
	RaftMultiplier  float64         // 0 means 1
	Tokens          string          // RC_TOKENS
	ClusterKey      string          // RCD_CLUSTER_KEY
	Version         string
	// EventsTokenInURL is api.Config's.
	EventsTokenInURL bool
	// WebhookURL, unless "", gets a POST for each thing that befalls devices
	// and jobs, signed with WebhookSecret unless that is "". Every controller
	// is given the same.
	WebhookURL    string
	WebhookSecret string
	// OutputCopies is how much this node's copies of jobs' output may take; the
	// zero value keeps none.
	OutputCopies copies.Limit
}

// Deps are what tests replace. The zero value means the real thing.
type Deps struct {
	Logger *slog.Logger
	// Listener and HTTPListener are used instead of listening on Config.Listen
	// and Config.HTTP. New owns them.
	Listener     net.Listener
	HTTPListener net.Listener
	// DialContext connects to other controllers.
	DialContext func(ctx context.Context, network, address string) (net.Conn, error)
	// WebhookPause is the pause after a webhook that was not taken, instead of
	// a second.
	WebhookPause time.Duration
	// Disk tells the size of the disk of the copies of output and what is free
	// on it, instead of the system.
	Disk func(dir string) (size, free int64, err error)
	// CopyBytes bounds the copy of one job's output instead of 1 GiB.
	CopyBytes int64
	// Table are options of the lease table.
	Table fsm.Options
	// Replica, unless nil, stands between Raft and the lease table: for tests
	// that damage a copy.
	Replica func(raftnode.StateMachine) raftnode.StateMachine
}

// maxNodeID bounds a controller's ID in bytes: it stands in every preface.
const maxNodeID = 64

// minClusterKey is the fewest bytes of a cluster key: below that it can be
// guessed offline from one recorded preface.
const minClusterKey = 16

var (
	errNoClusterKey = errors.New("RCD_CLUSTER_KEY is not set; give every controller the same secret of at least 16 bytes, for example from: openssl rand -hex 32")
	errShortKey     = errors.New("RCD_CLUSTER_KEY is too short; it needs at least 16 bytes")
	errNoTokens     = errors.New("RC_TOKENS is not set; give token:role pairs, for example RC_TOKENS=s3cret:admin,w0rker:worker")
	errNoWorker     = errors.New("RC_TOKENS has no worker token, so no agent could join; add one, for example …,w0rker:worker")
	errBadID        = errors.New("the controller's ID must be plain UTF-8 text of at most 64 bytes, such as c1")
	errNoID         = errors.New("a controller needs an ID, a data directory and two addresses")
)

func (c Config) check() (api.Tokens, error) {
	var none api.Tokens
	if c.NodeID == "" || c.DataDir == "" {
		return none, errNoID
	}
	if !utf8.ValidString(c.NodeID) || len(c.NodeID) > maxNodeID {
		return none, errBadID
	}
	if c.ClusterKey == "" {
		return none, errNoClusterKey
	}
	if len(c.ClusterKey) < minClusterKey {
		return none, errShortKey
	}
	if c.Tokens == "" {
		return none, errNoTokens
	}
	tokens, err := api.ParseTokens(c.Tokens)
	if err != nil {
		return none, err
	}
	if len(tokens.Workers()) == 0 {
		return none, errNoWorker
	}
	return tokens, c.checkWebhooks()
}

func (c Config) clusterKey() mux.Key {
	return mux.Key{Name: "cluster", Secret: []byte(c.ClusterKey)}
}

// listen opens the two ports, or takes the given ones.
func listen(config Config, deps Deps) (stream, web net.Listener, err error) {
	stream, web = deps.Listener, deps.HTTPListener
	if stream == nil {
		if stream, err = net.Listen("tcp", config.Listen); err != nil {
			return nil, nil, fmt.Errorf("open --listen: %w", err)
		}
	}
	if web == nil {
		if web, err = net.Listen("tcp", config.HTTP); err != nil {
			stream.Close()
			return nil, nil, fmt.Errorf("open --http: %w", err)
		}
	}
	return stream, web, nil
}

// Bounds of a controller's own work.
const (
	sweepEvery   = time.Second      // how often a leader looks for silence
	pruneEvery   = 10 * time.Second // how often it looks for rows past their bounds
	contactEvery = time.Second      // how often a follower reports whom it hears
	tendEvery    = time.Second      // how often a leader looks at the controllers
	alarmEvery   = time.Minute      // how often what waits for an operator is told again
	// wokeAfter is how late a tick may come before the process counts as
	// having been stopped: then what it remembers of silence means nothing.
	wokeAfter = 3 * time.Second
	// unreachableAfter is how long a leader may go without a report from a
	// majority before it takes itself for unreachable: several missed reports,
	// and less than what a client waits.
	unreachableAfter = 5 * time.Second
	// maxClockSkew is how far a leader's wall clock may be from the median of
	// its peers before it gives leadership away.
	maxClockSkew = 10 * time.Second
	clockFresh   = time.Minute
)
