package client

import (
	"context"
	"net/http"
	"net/url"

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

// Explain says what would become of a job with this selector, without
// submitting one.
func (c *Client) Explain(ctx context.Context, selector string) (*wire.Explain, error) {
	var explain wire.Explain
	if err := c.get(ctx, "/v1/explain?"+url.Values{"selector": {selector}}.Encode(), &explain); err != nil {
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
