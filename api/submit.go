package api

import (
	"context"
	"net/http"
	"strings"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// Priorities a job may have.
const (
	minPriority = -10
	maxPriority = 10
)

// submit queues a job. A known request ID gets the row of the first one, as it
// stands now.
func (s *server) submit(ctx context.Context, c *call) (reply, error) {
	var in wire.SubmitRequest
	if err := decodeBody(c.body, &in); err != nil {
		return reply{}, err
	}
	spec, err := jobSpec(in)
	if err != nil {
		return reply{}, err
	}
	request, also, err := submitRequests(c, "k:", in.IdempotencyKey)
	if err != nil {
		return reply{}, err
	}
	specs := []command.JobSpec{spec}
	if err := s.checkHolds(ctx, specs, request, also); err != nil {
		return reply{}, err
	}
	result, index, err := s.proposeBoth(ctx, request, also, &command.JobEnqueue{Jobs: specs})
	if err != nil {
		return reply{}, err
	}
	if len(result.Jobs) != 1 {
		return reply{}, refuse(http.StatusNotFound, wire.CodeNotFound,
			"the job of this request ID is no longer kept; submit again with a new one")
	}
	return reply{status: http.StatusCreated, body: wireJob(result.Jobs[0]), index: index, leader: s.NodeID}, nil
}

// submitRequests are the request IDs of a submit. The header's refuses another
// body; the body's field keeps the ancestor's rule: the earlier job, whatever
// the body says now. Either is enough to know a submit by. An ID that this
// edge has made up stands back for one that the caller gave. The prefix keeps
// the field's keys of jobs and of arrays apart.
func submitRequests(c *call, prefix, clientKey string) (header, field command.Request, err error) {
	if clientKey == "" {
		return c.request(), field, nil
	}
	const longest = command.MaxRequestID - len("k:") // all prefixes are as long
	if len(clientKey) > longest {
		return header, field, badRequest("idempotency_key has %d bytes; use at most %d", len(clientKey), longest)
	}
	field = command.Request{Scope: c.who.Scope, ID: prefix + clientKey, Digest: c.digest()}
	if c.minted {
		return field, header, nil
	}
	return c.request(), field, nil
}

// jobSpec turns a body into what the lease table takes. Only what the table
// cannot see any more is judged here: words that have no value of its types,
// and text that no process could be started with. The rules are the table's.
func jobSpec(in wire.SubmitRequest) (command.JobSpec, error) {
	kind, ok := model.ParseJobKind(in.Kind)
	if !ok {
		return command.JobSpec{}, badRequest("kind %q is unknown; use job or hold", in.Kind)
	}
	stdio, ok := model.ParseStdio(in.Stdio)
	if !ok {
		return command.JobSpec{}, badRequest("stdio %q is unknown; leave it out, or use tty or pipe", in.Stdio)
	}
	if in.Priority < minPriority || in.Priority > maxPriority {
		return command.JobSpec{}, refuse(http.StatusBadRequest, string(command.PriorityOutOfRange),
			"priority %d is out of range; use %d to %d", in.Priority, minPriority, maxPriority)
	}
	for _, text := range append([]string{in.Cwd}, in.Command...) {
		if strings.ContainsRune(text, 0) {
			return command.JobSpec{}, badRequest("command and cwd must not hold a NUL character: no process can be started with one")
		}
	}
	for name, value := range in.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.ContainsRune(value, 0) {
			return command.JobSpec{}, badRequest("the environment holds a name that is empty or has = in it, or a NUL character")
		}
	}
	if text := in.Env[model.GraceSignalEnv]; text != "" {
		if _, err := model.ParseGraceSignal(text); err != nil {
			return command.JobSpec{}, badRequest("%s: %v", model.GraceSignalEnv, err)
		}
	}
	if _, err := model.DetachTimeout(in.Env[model.DetachTimeoutEnv]); err != nil {
		return command.JobSpec{}, badRequest("%s: %v", model.DetachTimeoutEnv, err)
	}
	hold, ok := model.ParseJobID(in.Hold)
	if !ok && in.Hold != "" {
		return command.JobSpec{}, badRequest("hold %q is the ID of nothing; give the whole ID of a hold of yours, as rc jobs prints it", in.Hold)
	}
	return command.JobSpec{
		Kind:         kind,
		Pinned:       in.DeviceID,
		Selector:     in.Selector,
		Command:      in.Command,
		Cwd:          in.Cwd,
		Env:          in.Env,
		Submitter:    in.Submitter,
		ClientKey:    in.IdempotencyKey,
		Priority:     int8(in.Priority),
		MaxRuntimeS:  in.MaxRuntimeSeconds,
		IdleTimeoutS: in.IdleTimeoutSeconds,
		Stdio:        stdio,
		Note:         in.Reason,
		NoWait:       in.NoWait,
		Hold:         hold,
		SessionS:     in.SessionSeconds,
	}, nil
}

// named returns the job that a request which changes it names in its path, and
// the view that it is from: as new as the request, at this node, which leads.
func (s *server) named(ctx context.Context, c *call) (*view, *model.Job, error) {
	v, err := s.viewOnce(ctx, ReadOptions{})
	if err != nil {
		return nil, nil, err
	}
	job, err := v.wholeJob(c.target)
	return v, job, err
}

// kill asks for the end of a job. What becomes of it shows in the job.
func (s *server) kill(ctx context.Context, c *call) (reply, error) {
	var in wire.KillRequest
	if err := decodeBody(c.body, &in); err != nil {
		return reply{}, err
	}
	_, job, err := s.named(ctx, c)
	if err != nil {
		return reply{}, err
	}
	_, index, err := s.propose(ctx, c.request(), &command.JobKill{
		Job:      job.Number,
		By:       in.Submitter,
		Admin:    c.who.Role == RoleAdmin,
		Detached: job.State.Active() && !s.backend.Attached(job.Host),
	})
	if err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusOK, index: index, leader: s.NodeID}, nil
}

// clear takes an operator's word that a quarantined device is free.
func (s *server) clear(ctx context.Context, c *call) (reply, error) {
	_, index, err := s.propose(ctx, c.request(), &command.DeviceClear{Device: c.target})
	if err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusOK, index: index, leader: s.NodeID}, nil
}
