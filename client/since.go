package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"rcd/wire"
)

// Since makes a read wait: for something that concerns its answer to happen
// above the index of the answer before, or until Wait is over, and then answer
// as ever. The answer may be the same as the one before. The zero value reads
// at once, and so does a controller of an older version.
type Since struct {
	Index uint64
	Wait  time.Duration // at most 5 min count; 0 means the controller's own 30 s
}

// maxSince bounds what a controller waits at the most.
const maxSince = 5 * time.Minute

// longest is how long the answer may take, the controller's jitter included.
func (s Since) longest() time.Duration {
	if s.Index == 0 {
		return 0
	}
	wait := min(s.Wait, maxSince)
	if wait <= 0 {
		wait = 30 * time.Second
	}
	return wait + wait/16
}

func (s Since) values(q url.Values) url.Values {
	if s.Index > 0 {
		q.Set("index", strconv.FormatUint(s.Index, 10))
		if s.Wait > 0 {
			q.Set("wait", s.Wait.String())
		}
	}
	return q
}

// getSince is get for a read that may wait. It returns the index for the next
// one, 0 when the controller gives none: then there is no waiting.
func (c *Client) getSince(ctx context.Context, path string, q url.Values, s Since, patience time.Duration, v any) (uint64, error) {
	if q = s.values(q); len(q) > 0 {
		path += "?" + q.Encode()
	}
	a, err := c.decoded(ctx, call{method: http.MethodGet, path: path, patience: patience, waits: s.longest()}, v)
	if err != nil {
		return 0, err
	}
	index, _ := strconv.ParseUint(a.header.Get(wire.HeaderIndex), 10, 64)
	return index, nil
}

// JobViewSince is JobView that waits. While the job is queued, others that move
// wake it too, once a second at most.
func (c *Client) JobViewSince(ctx context.Context, id string, s Since) (*wire.JobView, uint64, error) {
	return c.jobViewSince(ctx, id, s, c.patience)
}

func (c *Client) jobViewSince(ctx context.Context, id string, s Since, patience time.Duration) (*wire.JobView, uint64, error) {
	var view wire.JobView
	index, err := c.getSince(ctx, jobPath(id, ""), url.Values{}, s, patience, &view)
	if err != nil {
		return nil, 0, err
	}
	return &view, index, nil
}

// DevicesSince is Devices that waits.
func (c *Client) DevicesSince(ctx context.Context, s Since) ([]wire.DeviceView, uint64, error) {
	devices := []wire.DeviceView{}
	index, err := c.getSince(ctx, "/v1/devices", url.Values{}, s, c.patience, &devices)
	if err != nil {
		return nil, 0, err
	}
	return devices, index, nil
}

// StateSince is State that waits.
func (c *Client) StateSince(ctx context.Context, s Since) (*wire.State, uint64, error) {
	var state wire.State
	index, err := c.getSince(ctx, "/v1/state", url.Values{}, s, c.patience, &state)
	if err != nil {
		return nil, 0, err
	}
	return &state, index, nil
}

// DescribeSince is Describe that waits.
func (c *Client) DescribeSince(ctx context.Context, deviceID string, s Since) (*wire.Describe, uint64, error) {
	var d wire.Describe
	index, err := c.getSince(ctx, devicePath(deviceID, "/describe"), url.Values{}, s, c.patience, &d)
	if err != nil {
		return nil, 0, err
	}
	return &d, index, nil
}

// JobsSince is Jobs that waits; the list holds the cursor of the next page.
func (c *Client) JobsSince(ctx context.Context, o JobsOptions, s Since) (*wire.JobList, uint64, error) {
	q := url.Values{}
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	for key, value := range map[string]string{"device": o.Device, "submitter": o.Submitter, "state": o.State, "hold": o.Hold, "cursor": o.Cursor} {
		if value != "" {
			q.Set(key, value)
		}
	}
	var list wire.JobList
	index, err := c.getSince(ctx, "/v1/jobs", q, s, c.patience, &list)
	if err != nil {
		return nil, 0, err
	}
	return &list, index, nil
}

// EachJob hands jobs to take, newest first, page by page, until there are no
// more or take returns false. Limit is the size of a page. Jobs that are
// submitted meanwhile are not among them.
func (c *Client) EachJob(ctx context.Context, o JobsOptions, take func(*wire.Job) bool) error {
	for {
		list, _, err := c.JobsSince(ctx, o, Since{})
		if err != nil {
			return err
		}
		for i := range list.Jobs {
			if !take(&list.Jobs[i]) {
				return nil
			}
		}
		if list.NextCursor == "" || list.NextCursor == o.Cursor {
			return nil
		}
		o.Cursor = list.NextCursor
	}
}
