package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"rcd/wire"
)

// SubmitOptions describe a job. Exactly one of DeviceID and Selector is given.
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
	body, err := json.Marshal(wire.SubmitRequest{
		DeviceID: o.DeviceID, Selector: o.Selector, Command: o.Command, Cwd: o.Cwd, Env: o.Env,
		Submitter: o.Submitter, IdempotencyKey: o.IdempotencyKey, Priority: o.Priority,
		MaxRuntimeSeconds: seconds(o.MaxRuntime), IdleTimeoutSeconds: seconds(o.IdleTimeout),
		NoWait: o.NoWait, Kind: o.Kind, Reason: o.Reason, Stdio: o.Stdio,
	})
	if err != nil {
		return nil, fmt.Errorf("encode job: %w", err)
	}
	if len(body) > wire.MaxBody {
		return nil, &APIError{Status: http.StatusRequestEntityTooLarge, Code: wire.CodeBodyTooLarge,
			Message: fmt.Sprintf("the job is %d bytes long, at most %d are taken; put long input into a file on the device host", len(body), wire.MaxBody)}
	}
	if o.RequestID == "" {
		o.RequestID = NewRequestID()
	}
	var job wire.Job
	err = c.do(ctx, call{method: http.MethodPost, path: "/v1/jobs", body: body, requestID: o.RequestID, patience: c.longPatience}, &job)
	if err != nil {
		return nil, err
	}
	return &job, nil
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
	var view wire.JobView
	if err := c.do(ctx, call{method: http.MethodGet, path: jobPath(id, ""), patience: patience}, &view); err != nil {
		return nil, err
	}
	return &view, nil
}

// jobPath returns the path of a job, or of what belongs to it ("/kill").
func jobPath(id, rest string) string { return "/v1/jobs/" + url.PathEscape(id) + rest }

// JobsOptions choose jobs; empty fields choose all.
type JobsOptions struct {
	Limit     int // 1 to 200; 0 means the controller's own (20)
	Device    string
	Submitter string
	State     string
}

// Jobs lists jobs, newest first.
func (c *Client) Jobs(ctx context.Context, o JobsOptions) ([]wire.Job, error) {
	q := url.Values{}
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	for key, value := range map[string]string{"device": o.Device, "submitter": o.Submitter, "state": o.State} {
		if value != "" {
			q.Set(key, value)
		}
	}
	path := "/v1/jobs"
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	var list wire.JobList
	if err := c.get(ctx, path, &list); err != nil {
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
