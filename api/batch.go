package api

import (
	"context"
	"errors"
	"net/http"

	"rcd/fsm/command"
	"rcd/wire"
)

// submitBatch queues an array of jobs, all or none, under one request ID. A
// known one gets the rows of the first, as they stand now.
func (s *server) submitBatch(ctx context.Context, c *call) (reply, error) {
	var in wire.BatchRequest
	if err := decodeBody(c.body, &in); err != nil {
		return reply{}, err
	}
	body, err := batchSpecs(in)
	if err != nil {
		return reply{}, err
	}
	request, also, err := submitRequests(c, "a:", in.IdempotencyKey)
	if err != nil {
		return reply{}, err
	}
	if err := s.checkHolds(ctx, body.Jobs, request, also); err != nil {
		return reply{}, err
	}
	result, index, err := s.proposeBoth(ctx, request, also, body)
	if err != nil {
		return reply{}, err
	}
	out := wire.Batch{Jobs: wireJobs(result.Jobs), Repeat: result.Repeat}
	return reply{status: http.StatusCreated, body: out, index: index, leader: s.NodeID}, nil
}

// batchSpecs turns the list into what the lease table takes. What concerns the
// request as a whole is not said of one job.
func batchSpecs(in wire.BatchRequest) (*command.JobEnqueue, error) {
	body := &command.JobEnqueue{Jobs: make([]command.JobSpec, 0, len(in.Jobs))}
	for i, one := range in.Jobs {
		switch {
		case one.NoWait:
			return nil, badRequest("job %d of the array: no_wait needs an answer of its own; submit such a job by itself", i+1)
		case one.IdempotencyKey != "":
			return nil, badRequest("job %d of the array: an array has one idempotency_key, beside jobs and not in one of them", i+1)
		}
		one.IdempotencyKey = in.IdempotencyKey
		spec, err := jobSpec(one)
		var no *refusal
		if errors.As(err, &no) {
			return nil, ofArray(no, i)
		}
		if err != nil {
			return nil, err
		}
		body.Jobs = append(body.Jobs, spec)
	}
	return body, nil
}

// ofArray says of which job of an array a refusal is.
func ofArray(no *refusal, i int) *refusal {
	return refuse(no.status, no.code, "job %d of the array: %s", i+1, no.message)
}
