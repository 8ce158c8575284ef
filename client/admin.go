package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"rcd/wire"
)

// Fault takes a device out of the pool until an admin clears it; for agents and
// admins. A job on it goes on.
func (c *Client) Fault(ctx context.Context, deviceID, reason string) error {
	return c.change(ctx, http.MethodPost, devicePath(deviceID, "/fault"), wire.FaultRequest{Reason: reason}, nil)
}

// Retire takes a device that nobody holds out of the fleet; for admins. Jobs
// that wait for it end. The answer says what could bring it back.
func (c *Client) Retire(ctx context.Context, deviceID string) (*wire.Retired, error) {
	var out wire.Retired
	if err := c.change(ctx, http.MethodDelete, devicePath(deviceID, ""), nil, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// RetireHost takes a host that is gone out of the fleet, with its devices; for
// admins.
func (c *Client) RetireHost(ctx context.Context, host string) (*wire.Retired, error) {
	var out wire.Retired
	if err := c.change(ctx, http.MethodDelete, "/v1/hosts/"+url.PathEscape(host), nil, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// Extend lengthens the runtime of a job to maxRuntime in all, in whole seconds
// (rounded up). Only the job's own submitter and an admin may.
func (c *Client) Extend(ctx context.Context, id, submitter string, maxRuntime time.Duration) (*wire.Job, error) {
	var job wire.Job
	body := wire.ExtendRequest{Submitter: submitter, MaxRuntimeSeconds: seconds(maxRuntime)}
	if err := c.change(ctx, http.MethodPost, jobPath(id, "/extend"), body, &job); err != nil {
		return nil, err
	}
	return &job, nil
}

// Release gives the lease of a job back before its end, as Kill does. With
// force, for admins, the lease of a host that is out of reach ends without it,
// and the device stays in quarantine.
func (c *Client) Release(ctx context.Context, id, submitter string, force bool) (*wire.Job, error) {
	var job wire.Job
	body := wire.ReleaseRequest{Submitter: submitter, Force: force}
	if err := c.change(ctx, http.MethodPost, jobPath(id, "/release"), body, &job); err != nil {
		return nil, err
	}
	return &job, nil
}

// Settings returns the replicated settings and their defaults.
func (c *Client) Settings(ctx context.Context) (*wire.Settings, error) {
	var out wire.Settings
	if err := c.get(ctx, "/v1/settings", &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// SetSettings changes the settings named, all or none, and returns all of them;
// for admins. A value is a whole number or, of a switch, a bool.
func (c *Client) SetSettings(ctx context.Context, settings map[string]any) (*wire.Settings, error) {
	var out wire.Settings
	if err := c.change(ctx, http.MethodPatch, "/v1/settings", settings, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// Members returns the cluster's feature level and each controller's word.
func (c *Client) Members(ctx context.Context) (*wire.Members, error) {
	var out wire.Members
	if err := c.get(ctx, "/v1/members", &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// change asks for one change, with one effect however often it is asked for.
// body and answer may be nil.
func (c *Client) change(ctx context.Context, method, path string, body, answer any) error {
	r := call{method: method, path: path, requestID: NewRequestID(), patience: c.patience}
	if body != nil {
		var err error
		if r.body, err = json.Marshal(body); err != nil {
			return fmt.Errorf("encode request to %s: %w", path, err)
		}
	}
	return c.do(ctx, r, answer)
}
