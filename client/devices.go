package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"rcd/wire"
)

// Devices lists the fleet by ID.
func (c *Client) Devices(ctx context.Context) ([]wire.DeviceView, error) {
	devices := []wire.DeviceView{}
	if err := c.get(ctx, "/v1/devices", &devices); err != nil {
		return nil, err
	}
	return devices, nil
}

// State returns the fleet, the jobs that hold devices, and the whole queue in
// scheduling order.
func (c *Client) State(ctx context.Context) (*wire.State, error) {
	var state wire.State
	if err := c.get(ctx, "/v1/state", &state); err != nil {
		return nil, err
	}
	return &state, nil
}

// ExplainOptions choose what to explain: a job that is not submitted, by its
// selector and runtime (zero: none asked), or a queued one by its ID.
type ExplainOptions struct {
	Selector   string
	MaxRuntime time.Duration
	JobID      string
}

// Explain says what would become of a job, without submitting one, or becomes
// of a queued one.
func (c *Client) Explain(ctx context.Context, o ExplainOptions) (*wire.Explain, error) {
	q := url.Values{}
	if o.Selector != "" {
		q.Set("selector", o.Selector)
	}
	if o.JobID != "" {
		q.Set("job", o.JobID)
	}
	if o.MaxRuntime != 0 {
		q.Set("max_runtime_seconds", strconv.FormatInt(seconds(o.MaxRuntime), 10))
	}
	var explain wire.Explain
	if err := c.get(ctx, "/v1/explain?"+q.Encode(), &explain); err != nil {
		return nil, err
	}
	return &explain, nil
}

// Describe returns all that is known of one device.
func (c *Client) Describe(ctx context.Context, deviceID string) (*wire.Describe, error) {
	var d wire.Describe
	if err := c.get(ctx, devicePath(deviceID, "/describe"), &d); err != nil {
		return nil, err
	}
	return &d, nil
}

// Clear returns a quarantined device to the pool; for admins. A device that is
// not in quarantine, or still leased, is an error and not a success: this is
// the one override for a stuck device, and it must not report what it did not
// do.
func (c *Client) Clear(ctx context.Context, deviceID string) error {
	return c.do(ctx, call{method: http.MethodPost, path: devicePath(deviceID, "/clear"),
		requestID: NewRequestID(), patience: c.patience}, nil)
}

func devicePath(id, rest string) string { return "/v1/devices/" + url.PathEscape(id) + rest }

// Whoami returns the role of the client's token: "client" or "admin".
func (c *Client) Whoami(ctx context.Context) (string, error) {
	var who wire.Whoami
	if err := c.get(ctx, "/v1/whoami", &who); err != nil {
		return "", err
	}
	return who.Role, nil
}
