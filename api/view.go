package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"rcd/fsm"
	"rcd/model"
	"rcd/raftnode"
	"rcd/wire"
)

// view is the lease table as a request sees it.
type view struct {
	*fsm.View
	info  ReadInfo
	now   time.Time
	stale bool
}

// viewOnce reads once, without waiting for a leader.
func (s *server) viewOnce(ctx context.Context, o ReadOptions) (*view, error) {
	leader := s.backend.Leader()
	ctx, done := whileLeader(ctx, leader, raftnode.ErrNotLeader)
	defer done()
	table, info, err := s.backend.Read(ctx, o)
	if err != nil {
		return nil, err
	}
	if table.Index() == 0 {
		// A node without any state has an empty fleet to show, which is the
		// one thing it must never show as the truth.
		return nil, raftnode.ErrNotReady
	}
	now := info.Now
	if now.IsZero() {
		now = time.UnixMilli(table.NowMS())
	}
	return &view{View: table, info: info, now: now, stale: o.Stale}, nil
}

// viewFor reads as the query asks, again and again until the deadline.
func (s *server) viewFor(r *http.Request, heard bool) (*view, error) {
	stale, err := wantsStale(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestDeadline)
	defer cancel()
	for {
		if err := s.ifHalted(); err != nil && !s.internal {
			return nil, err
		}
		v, err := s.viewOnce(ctx, ReadOptions{Stale: stale, Heard: heard})
		if err == nil {
			return v, nil
		}
		var no *refusal
		switch {
		case errors.As(err, &no), errors.Is(err, raftnode.ErrOverloaded):
			return nil, err
		case s.internal:
			return nil, err
		case errors.Is(err, raftnode.ErrClosed):
			return nil, refuse(http.StatusServiceUnavailable, wire.CodeNoLeader,
				"controller %s is being stopped; ask another one", s.NodeID)
		case !pause(ctx):
			s.Logger.Debug("read not answered in time", "path", r.URL.Path, "err", err)
			return nil, s.noLeader(ctx)
		}
	}
}

func wantsStale(r *http.Request) (bool, error) {
	stale, err := boolParam(r, "stale", false)
	if err != nil {
		return false, err
	}
	switch level := r.URL.Query().Get("consistency"); level {
	case "":
		return stale, nil
	case "stale":
		return true, nil
	case "linearizable":
		return false, nil
	default:
		return false, badRequest("consistency %q is unknown; use stale or linearizable", level)
	}
}

func boolParam(r *http.Request, name string, otherwise bool) (bool, error) {
	switch text := r.URL.Query().Get(name); text {
	case "":
		return otherwise, nil
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, badRequest("%s is %q; use true or false", name, text)
	}
}

// intParam returns a decimal query parameter from low to high.
func intParam(r *http.Request, name string, low, high, otherwise int64) (int64, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < low || n > high || text[0] == '+' {
		return 0, badRequest("%s is %q; use a number from %d to %d", name, text, low, high)
	}
	return n, nil
}

// reply makes the answer to a read.
func (v *view) reply(w http.ResponseWriter, body any) reply {
	if v.stale {
		w.Header().Set(wire.HeaderAge, strconv.FormatInt(v.info.Age.Milliseconds(), 10))
		if v.info.Heard != nil && v.info.HeardAge >= 0 {
			w.Header().Set(wire.HeaderHeardAge, strconv.FormatInt(v.info.HeardAge.Milliseconds(), 10))
		}
	}
	return reply{status: http.StatusOK, body: body, index: v.Index(), leader: v.info.Leader}
}

// maxNamed is how many candidates an ambiguous ID's answer names.
const maxNamed = 5

// job returns the job of an ID, exact or a prefix that fits no other.
func (v *view) job(id string) (*model.Job, error) {
	job, err := v.ResolveJob(id)
	switch {
	case err == nil:
		return job, nil
	case errors.Is(err, fsm.ErrAmbiguous):
		return nil, refuse(http.StatusBadRequest, wire.CodeAmbiguous,
			"%q fits more than one job%s; write more of the ID", id, v.candidates(id))
	case errors.Is(err, fsm.ErrNotFound):
		return nil, refuse(http.StatusNotFound, wire.CodeNotFound,
			"there is no job %q; rc jobs lists those that are kept", id)
	}
	return nil, err
}

// wholeJob returns the job of exactly this ID, for requests that change it. A
// prefix never names what is to be ended: after j-1 has been forgotten it
// would be j-17, which is somebody else's.
func (v *view) wholeJob(id string) (*model.Job, error) {
	if n, ok := model.ParseJobID(id); ok {
		if job := v.Job(n); job != nil {
			return job, nil
		}
	}
	if _, err := v.ResolveJob(id); errors.Is(err, fsm.ErrNotFound) {
		return v.job(id)
	}
	return nil, refuse(http.StatusNotFound, wire.CodeNotFound,
		"there is no job %q, only one or more whose IDs begin so; a request that changes a job takes its whole ID, as rc jobs prints it", id)
}

// candidates names some jobs whose IDs begin with prefix: of the newest, which
// are those that people type.
func (v *view) candidates(prefix string) string {
	var ids []string
	for _, job := range v.Jobs(fsm.JobFilter{Limit: fsm.MaxListed}) {
		if strings.HasPrefix(job.ID(), prefix) && len(ids) < maxNamed {
			ids = append(ids, job.ID())
		}
	}
	if len(ids) == 0 {
		return ""
	}
	return " (" + strings.Join(ids, ", ") + ", …)"
}
