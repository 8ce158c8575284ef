package api

import (
	"context"
	_ "embed" // the page
	"net/http"
	"time"

	"rcd/wire"
)

const (
	// readyAge is how long ago this node may have heard a leader and still
	// count as ready: elections take less.
	readyAge = 10 * time.Second

	// readyBehind is how many committed entries it may have left to apply.
	// Catching up after a start is many thousands; a busy moment is a few.
	readyBehind = 1000
)

// healthz says that the process lives, and nothing more: a supervisor that
// restarts controllers because a cluster has no leader makes it worse.
func (s *server) healthz(w http.ResponseWriter, _ *http.Request) {
	_ = s.send(w, reply{status: http.StatusOK, raw: []byte("ok\n"), contentType: "text/plain; charset=utf-8"})
}

// readyz says whether this node can answer requests, so that a balancer sends
// them to nodes that can. It asks nobody.
func (s *server) readyz(w http.ResponseWriter, r *http.Request) {
	ready, err := s.ready(r.Context())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	_ = s.send(w, reply{status: http.StatusOK, leader: ready.Leader, body: ready})
}

func (s *server) ready(ctx context.Context) (wire.Ready, error) {
	if err := s.ifHalted(); err != nil {
		return wire.Ready{}, err
	}
	leader := s.backend.Leader().ID
	if leader == "" {
		return wire.Ready{}, s.noLeader(ctx)
	}
	v, err := s.viewOnce(ctx, ReadOptions{Stale: true})
	if err != nil {
		return wire.Ready{}, refuse(http.StatusServiceUnavailable, wire.CodeNotReady,
			"controller %s has nothing of the cluster's state yet; use another one until it has", s.NodeID)
	}
	if v.info.Age > readyAge {
		return wire.Ready{}, refuse(http.StatusServiceUnavailable, wire.CodeNotReady,
			"controller %s has not heard a leader for %s; use another one, and look at its network", s.NodeID, v.info.Age.Round(time.Second))
	}
	if status := s.backend.RaftStatus(ctx); status.FSMIndex+readyBehind < status.Commit {
		return wire.Ready{}, refuse(http.StatusServiceUnavailable, wire.CodeNotReady,
			"controller %s is reading its log, at entry %d of %d; use another one until it is through", s.NodeID, status.FSMIndex, status.Commit)
	}
	return wire.Ready{Ready: true, Leader: leader}, nil
}

//go:embed page.html
var rootPage []byte

// root shows what this address is. The page holds no data and asks for none,
// so it needs no token and no script.
func (s *server) root(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	_ = s.send(w, reply{status: http.StatusOK, raw: rootPage, contentType: "text/html; charset=utf-8"})
}
