package main

import (
	"io"
	"testing"

	"rcd/client"
)

// asks returns a client of a fake controller.
func asks(t *testing.T) *client.Client {
	t.Helper()
	fake := newController()
	t.Cleanup(func() { fake.CloseClientConnections(); fake.Close() })
	c, err := client.New(client.Options{Controllers: []string{fake.URL}, Token: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// A stream that is resumed under the beginning of an ID could turn to a job
// that has come since.
func TestABeginningIsSettledOnceToTheWholeID(t *testing.T) {
	c := asks(t)
	a := &app{ctx: t.Context(), stderr: io.Discard}
	if _, err := c.Submit(t.Context(), client.SubmitOptions{DeviceID: "box:gpu0", Command: []string{"id:j-17"}, Submitter: "ann@box"}); err != nil {
		t.Fatal(err)
	}
	for _, given := range []string{"j-1", "j-17"} {
		if view, err := resolveJob(a.ctx, a, c, given); err != nil || view.Job.ID != "j-17" {
			t.Errorf("%s: %v, error %v", given, view, err)
		}
	}
}

func TestADeviceIsFoundByTheBeginningOfItsID(t *testing.T) {
	c := asks(t)
	a := &app{ctx: t.Context(), stderr: io.Discard}
	for given, want := range map[string]struct {
		id   string
		code int
	}{
		"box:gpu0": {"box:gpu0", exitOK},
		"far":      {"far:gpu0", exitOK},
		"box":      {"", exitUsage}, // several
		"fa":       {"", exitUsage}, // too short
		"near":     {"", exitNotFound},
	} {
		if id, err := resolveDevice(a, c, given); id != want.id || codeOf(err) != want.code {
			t.Errorf("%s: %q, error %v", given, id, err)
		}
	}
}
