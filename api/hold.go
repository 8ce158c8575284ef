package api

import (
	"bytes"
	"context"
	"net/http"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/session"
	"rcd/wire"
)

// checkHolds refuses jobs inside holds, and sessions, that this cluster cannot
// carry yet; the other rules are the table's. A request ID that is known gets its
// answer, whatever has become of the agent since.
func (s *server) checkHolds(ctx context.Context, specs []command.JobSpec, ids ...command.Request) error {
	wanted := false
	for i := range specs {
		wanted = wanted || specs[i].Hold != 0 || specs[i].SessionS != 0
	}
	if !wanted {
		return nil
	}
	v, err := s.viewOnce(ctx, ReadOptions{Stale: true}) // the leader's own: what it refuses by only rises, or is its own to know
	if err != nil {
		return err
	}
	for _, id := range ids {
		if id.ID != "" && v.RequestFor(id.Scope, id.ID) != nil {
			return nil
		}
	}
	// The table would say so too, but a controller that does not know the level
	// cannot read the command, and would halt.
	if level := v.FeatureLevel(); level < fsm.LevelInside {
		return refuse(http.StatusConflict, string(command.FeatureRefused),
			"work inside a hold and holds with a session need feature level %d, and the cluster is at %d; upgrade every controller first, GET /v1/members shows which is behind",
			fsm.LevelInside, level)
	}
	for i := range specs {
		no := s.checkAgent(v, specs[i].Hold)
		switch {
		case no != nil && len(specs) > 1:
			return ofArray(no, i)
		case no != nil:
			return no
		}
	}
	return nil
}

// checkAgent refuses a hold on a host whose agent knows of no jobs inside. One
// that is away is not judged: what it speaks shows when it comes.
func (s *server) checkAgent(v *view, hold uint64) *refusal {
	row := v.Job(hold)
	if row == nil || row.Host == "" {
		return nil
	}
	if protocol := s.backend.AgentProtocol(row.Host); protocol == 0 || protocol >= session.InsideProtocol {
		return nil
	}
	return refuse(http.StatusConflict, wire.CodeAgentTooOld,
		"the agent of host %s is of an earlier release, which runs nothing inside a hold; upgrade the agent on %s, %s goes on meanwhile",
		row.Host, row.Host, row.ID())
}

// heartbeat takes that the client of a hold with a session is there. It is no
// entry of the log: the leader remembers it.
func (s *server) heartbeat(ctx context.Context, c *call) (reply, error) {
	var in wire.HeartbeatRequest
	if len(bytes.TrimSpace(c.body)) > 0 {
		if err := decodeBody(c.body, &in); err != nil {
			return reply{}, err
		}
	}
	v, job, err := s.named(ctx, c)
	if err != nil {
		return reply{}, err
	}
	switch {
	case job.SessionS == 0:
		return reply{}, badRequest("%s has no session to keep alive; only a hold that was submitted with session_seconds has one", job.ID())
	case !c.speaksFor(job, in.Submitter):
		return reply{}, refuse(http.StatusForbidden, string(command.NotJobOwner),
			"%s is of %s; only its submitter and an admin keep its session alive", job.ID(), job.Submitter)
	case job.State.Terminal():
		return reply{}, refuse(http.StatusConflict, wire.CodeJobEnded,
			"%s has ended (%s), and its device is not yours any more; submit another hold if you still need one", job.ID(), howEnded(job))
	}
	s.backend.HearSession(job.Number)
	return reply{
		status: http.StatusOK, index: v.Index(), leader: s.NodeID,
		body: wire.HeartbeatAnswer{State: job.State.String(), KillRequested: job.KillRequested, SessionSeconds: job.SessionS},
	}, nil
}

// speaksFor reports whether a call may speak for the submitter of a job: it names
// the same one, or names none and has the token that the job was submitted with.
func (c *call) speaksFor(job *model.Job, submitter string) bool {
	if c.who.Role == RoleAdmin {
		return true
	}
	if submitter == "" {
		return c.who.Scope == job.Identity
	}
	return submitter == job.Submitter
}

func howEnded(job *model.Job) string {
	if job.EndReason == "" {
		return job.State.String()
	}
	return job.State.String() + ": " + job.EndReason
}
