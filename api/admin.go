package api

import (
	"context"
	"net/http"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// fault takes the word that a device is unfit: it leaves the pool until an
// operator clears it.
func (s *server) fault(ctx context.Context, c *call) (reply, error) {
	var in wire.FaultRequest
	if err := decodeBody(c.body, &in); err != nil {
		return reply{}, err
	}
	_, index, err := s.propose(ctx, c.request(), &command.DeviceFault{Device: c.target, Detail: in.Reason})
	if err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusOK, index: index, leader: s.NodeID}, nil
}

// retire takes a device out of the fleet.
func (s *server) retire(ctx context.Context, c *call) (reply, error) {
	return s.retired(ctx, c, &command.DeviceRetire{Device: c.target},
		"its jobs stay in the history; a host that still declares it brings it back when its agent registers, so take it out of the agent's configuration too")
}

// retireHost takes a host that is gone out of the fleet, with its devices.
func (s *server) retireHost(ctx context.Context, c *call) (reply, error) {
	return s.retired(ctx, c, &command.DeviceRetire{Host: c.target},
		"its devices are gone with it and their jobs stay in the history; an agent of that host name, on whatever machine, registers anew")
}

func (s *server) retired(ctx context.Context, c *call, body *command.DeviceRetire, note string) (reply, error) {
	_, index, err := s.propose(ctx, c.request(), body)
	if err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusOK, body: wire.Retired{Retired: c.target, Note: note}, index: index, leader: s.NodeID}, nil
}

// extend lengthens the runtime of a job.
func (s *server) extend(ctx context.Context, c *call) (reply, error) {
	var in wire.ExtendRequest
	if err := decodeBody(c.body, &in); err != nil {
		return reply{}, err
	}
	return s.onJob(ctx, c, func(job *model.Job) any {
		return &command.LeaseExtend{Job: job.Number, By: in.Submitter, Admin: c.who.Role == RoleAdmin, MaxRuntimeS: in.MaxRuntimeSeconds}
	})
}

// release gives a lease back. What becomes of the job shows in the job.
func (s *server) release(ctx context.Context, c *call) (reply, error) {
	var in wire.ReleaseRequest
	if err := decodeBody(c.body, &in); err != nil {
		return reply{}, err
	}
	return s.onJob(ctx, c, func(job *model.Job) any {
		return &command.LeaseRelease{
			Job: job.Number, By: in.Submitter, Admin: c.who.Role == RoleAdmin, Force: in.Force,
			// Of a hold that has ended what ran inside may still be on its host.
			Detached: job.Host != "" && !s.backend.Attached(job.Host),
		}
	})
}

// onJob proposes a command about the job of the path and answers with the job.
func (s *server) onJob(ctx context.Context, c *call, body func(*model.Job) any) (reply, error) {
	_, job, err := s.named(ctx, c)
	if err != nil {
		return reply{}, err
	}
	result, index, err := s.propose(ctx, c.request(), body(job))
	if err != nil {
		return reply{}, err
	}
	if len(result.Jobs) == 1 {
		job = result.Jobs[0]
	}
	return reply{status: http.StatusOK, body: wireJob(job), index: index, leader: s.NodeID}, nil
}
