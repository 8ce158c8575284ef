package client_test

import (
	"errors"
	"strings"
	"testing"

	"rcd/client"
	"rcd/wire"
)

// TestTextThatIsNotUTF8IsRefusedAndNotChanged: JSON would make another
// character of the byte, and rm another file's name.
func TestTextThatIsNotUTF8IsRefusedAndNotChanged(t *testing.T) {
	b := newBetween(t)
	for name, o := range map[string]client.SubmitOptions{
		"command":   {Command: []string{"rm", "a\xff"}},
		"directory": {Command: []string{"ls"}, Cwd: "/a\xff"},
		"value":     {Command: []string{"ls"}, Env: map[string]string{"A": "\xff"}},
		"name":      {Command: []string{"ls"}, Env: map[string]string{"\xff": "A"}},
	} {
		o.DeviceID, o.Submitter, o.Stdio = "box:gpu0", "ann", "pipe"
		var refusal *client.APIError
		if _, err := b.c.Submit(t.Context(), o); !errors.As(err, &refusal) || refusal.Code != wire.CodeBadRequest || !strings.Contains(refusal.Message, `\xff" is not UTF-8`) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := b.c.SubmitAll(t.Context(), []client.SubmitOptions{o}, ""); !errors.As(err, &refusal) || refusal.Code != wire.CodeBadRequest {
			t.Errorf("%s in an array: %v", name, err)
		}
	}
	if _, err := b.c.CopyTo(t.Context(), b.options("/etc/hostname", "a\xff")); err == nil {
		t.Error("a copy to a name that is not UTF-8 goes somewhere else")
	}
	if running := b.host.Running(); running != nil {
		t.Errorf("%q run", running)
	}
}
