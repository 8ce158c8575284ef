package main

import (
	"context"
	"fmt"
	"strings"

	"rcd/client"
	"rcd/wire"
)

// minPrefix is the least that is taken for the beginning of an ID.
const minPrefix = 3

// resolveJob looks at a job for a verb that only reads: at id itself if there
// is such a job, else at the one whose ID begins so, which is said.
// Verbs that change something take whole IDs only, and the controllers hold
// them to it: all IDs are numbers behind the same two characters, so that j-1
// would be j-17 once j-1 has been forgotten.
//
// It is done once, at the start: a beginning that fits one job now may fit two
// when a stream is resumed.
func resolveJob(ctx context.Context, a *app, c *client.Client, id string) (*wire.JobView, error) {
	if len(id) < minPrefix {
		return nil, tooShort("job", id)
	}
	view, err := c.JobView(ctx, id)
	if err != nil {
		return nil, err
	}
	if view.Job.ID != id {
		a.say("%s is taken for %s", id, view.Job.ID)
	}
	return view, nil
}

// resolveDevice is resolveJob for devices.
func resolveDevice(a *app, c *client.Client, id string) (string, error) {
	if len(id) < minPrefix {
		return "", tooShort("device", id)
	}
	devices, err := c.Devices(a.ctx)
	if err != nil {
		return "", err
	}
	var fit []string
	for _, d := range devices {
		if d.Device.ID == id {
			return id, nil
		}
		if strings.HasPrefix(d.Device.ID, id) {
			fit = append(fit, d.Device.ID)
		}
	}
	switch len(fit) {
	case 0:
		return "", absentError(fmt.Sprintf("there is no device %s; rc devices lists those there are", id))
	case 1:
		a.say("%s is taken for %s", id, fit[0])
		return fit[0], nil
	}
	return "", &usageError{text: fmt.Sprintf("%s fits more than one device (%s); write more of the ID", id, strings.Join(fit[:min(len(fit), maxNamed)], ", "))}
}

// maxNamed is how many candidates are named.
const maxNamed = 5

func tooShort(what, id string) error {
	return &usageError{text: fmt.Sprintf("%q is too short for the beginning of a %s's ID; write at least %d characters", id, what, minPrefix)}
}
