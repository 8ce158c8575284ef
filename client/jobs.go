package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"
	"unicode/utf8"

	"rcd/wire"
)

// SubmitOptions describe a job. Exactly one of DeviceID, Selector and Hold is
// given.
type SubmitOptions struct {
	DeviceID  string
	Selector  string // picks a device by its labels
	Command   []string
	Cwd       string // on the device host
	Env       map[string]string
	Submitter string
	// Priority is -10 to 10; higher runs sooner.
	Priority int
	// MaxRuntime and IdleTimeout are enforced on the device host, in whole
	// seconds (rounded up); zero means the device's own.
	MaxRuntime  time.Duration
	IdleTimeout time.Duration
	// NoWait asks for ErrNoDevice instead of a place in the queue.
	NoWait bool
	// Kind is "job" or "hold"; "" means a job.
	Kind   string
	Reason string // of a hold
	Stdio  string // "", "tty" or "pipe"
	// Hold is the ID of a hold of the same submitter that is assigned or running:
	// the job runs inside it, at once, and ends with it.
	Hold string
	// Session, of a hold, in whole seconds (rounded up): it ends once no
	// Heartbeat has come for so long. Zero: it ends by itself only at MaxRuntime.
	Session time.Duration

	// RequestID names this submit, so that repeating it, from another process
	// too, has one effect; "" makes a new one. Under a known ID another body
	// is refused (422).
	RequestID string
	// IdempotencyKey is the ancestor's field: under a known key the earlier
	// job comes back whatever the body says. Mostly RequestID is better.
	IdempotencyKey string
}

// Submit asks for a job and returns it, queued or already placed. It looks for
// a controller with the long patience and repeats under one request ID. After
// an *OutageError with Unknown set the job may exist all the same.
func (c *Client) Submit(ctx context.Context, o SubmitOptions) (*wire.Job, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	var job wire.Job
	if err := c.submit(ctx, "/v1/jobs", o.request(), o.RequestID, &job); err != nil {
		return nil, err
	}
	return &job, nil
}

// check refuses text that is not UTF-8, as JSON has to be: what arrived would
// name another file, and nobody would see it.
func (o SubmitOptions) check() error {
	all := append([]string{o.DeviceID, o.Selector, o.Cwd, o.Submitter, o.Reason}, o.Command...)
	for key, value := range o.Env {
		all = append(all, key, value)
	}
	for _, text := range all {
		if !utf8.ValidString(text) {
			return &APIError{Status: http.StatusBadRequest, Code: wire.CodeBadRequest,
				Message: fmt.Sprintf("%.100q is not UTF-8, and would arrive as something else; put it into a file on the device host", text)}
		}
	}
	return nil
}

// request is the body of a submit.
func (o SubmitOptions) request() wire.SubmitRequest {
	return wire.SubmitRequest{
		DeviceID: o.DeviceID, Selector: o.Selector, Command: o.Command, Cwd: o.Cwd, Env: o.Env,
		Submitter: o.Submitter, IdempotencyKey: o.IdempotencyKey, Priority: o.Priority,
		MaxRuntimeSeconds: seconds(o.MaxRuntime), IdleTimeoutSeconds: seconds(o.IdleTimeout),
		NoWait: o.NoWait, Kind: o.Kind, Reason: o.Reason, Stdio: o.Stdio,
		Hold: o.Hold, SessionSeconds: seconds(o.Session),
	}
}

// submit posts what makes jobs, under one request ID.
func (c *Client) submit(ctx context.Context, path string, in any, requestID string, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode job: %w", err)
	}
	if len(body) > wire.MaxBody {
		return &APIError{Status: http.StatusRequestEntityTooLarge, Code: wire.CodeBodyTooLarge,
			Message: fmt.Sprintf("the job is %d bytes long, at most %d are taken; put long input into a file on the device host", len(body), wire.MaxBody)}
	}
	if requestID == "" {
		requestID = NewRequestID()
	}
	return c.do(ctx, call{method: http.MethodPost, path: path, body: body, requestID: requestID, patience: c.longPatience}, out)
}

// SubmitAll asks for an array of jobs, all or none, and returns them in the
// order of the options, as Submit would each. The options have no request ID,
// no idempotency key and no NoWait of their own; requestID, "" for a new one,
// is that of all.
func (c *Client) SubmitAll(ctx context.Context, jobs []SubmitOptions, requestID string) ([]wire.Job, error) {
	var in wire.BatchRequest
	for i, o := range jobs {
		if o.RequestID != "" {
			return nil, &APIError{Status: http.StatusBadRequest, Code: wire.CodeBadRequest,
				Message: fmt.Sprintf("job %d of the array has a request ID of its own; an array has one for all", i+1)}
		}
		if err := o.check(); err != nil {
			return nil, err
		}
		in.Jobs = append(in.Jobs, o.request())
	}
	var out wire.Batch
	if err := c.submit(ctx, "/v1/jobs:batch", in, requestID, &out); err != nil {
		return nil, err
	}
	return out.Jobs, nil
}

// seconds rounds up: a limit of 1.5 s must not end a job after one.
func seconds(d time.Duration) int64 {
	return int64((d + time.Second - 1) / time.Second)
}

// Job returns a job by its ID or a unique prefix of it.
func (c *Client) Job(ctx context.Context, id string) (*wire.Job, error) {
	view, err := c.JobView(ctx, id)
	if err != nil {
		return nil, err
	}
	return &view.Job, nil
}

// JobView returns a job with its place in the queue.
func (c *Client) JobView(ctx context.Context, id string) (*wire.JobView, error) {
	return c.jobView(ctx, id, c.patience)
}

func (c *Client) jobView(ctx context.Context, id string, patience time.Duration) (*wire.JobView, error) {
	view, _, err := c.jobViewSince(ctx, id, Since{}, patience)
	return view, err
}

// jobPath returns the path of a job, or of what belongs to it ("/kill").
func jobPath(id, rest string) string { return "/v1/jobs/" + url.PathEscape(id) + rest }

// JobsOptions choose jobs; empty fields choose all.
type JobsOptions struct {
	Limit     int // 1 to 200; 0 means the controller's own (20)
	Device    string
	Submitter string
	State     string
	Hold      string // only jobs inside this hold, by its whole ID
	// Cursor is the NextCursor of the page before; the filters may then be left
	// out, and must else be the same.
	Cursor string
}

// Jobs lists jobs, newest first.
func (c *Client) Jobs(ctx context.Context, o JobsOptions) ([]wire.Job, error) {
	list, _, err := c.JobsSince(ctx, o, Since{})
	if err != nil {
		return nil, err
	}
	return list.Jobs, nil
}

// Kill asks for the end of a job in the name of submitter: a queued one is
// cancelled at once, a running one ends when its host has seen to it. Only the
// job's own submitter and an admin may. ErrNotCancellable means that it had
// ended or changed hands; see there.
func (c *Client) Kill(ctx context.Context, id, submitter string) error {
	body, err := json.Marshal(wire.KillRequest{Submitter: submitter})
	if err != nil {
		return fmt.Errorf("encode kill: %w", err)
	}
	return c.do(ctx, call{method: http.MethodPost, path: jobPath(id, "/kill"), body: body,
		requestID: NewRequestID(), patience: c.patience}, nil)
}

// Heartbeat says in the name of submitter that the client of a hold with a
// session is there, and returns how the hold stands. A third of SessionSeconds
// is a good time between two. It is no change, and costs the cluster no entry of
// its log. ErrJobEnded means that the hold has ended.
func (c *Client) Heartbeat(ctx context.Context, id, submitter string) (*wire.HeartbeatAnswer, error) {
	body, err := json.Marshal(wire.HeartbeatRequest{Submitter: submitter})
	if err != nil {
		return nil, fmt.Errorf("encode heartbeat: %w", err)
	}
	var out wire.HeartbeatAnswer
	if err := c.do(ctx, call{method: http.MethodPost, path: jobPath(id, "/heartbeat"), body: body, patience: c.patience}, &out); err != nil {
		return nil, err
	}
	return &out, nil
}
