package chaos

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestClosingTheTerminalLeavesWhatRcSays closes the windows of people who hold
// a device, wait in the queue and sit at a job.
func TestClosingTheTerminalLeavesWhatRcSays(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 1, Devices: 2})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	says := func(s *sitting, text string) {
		t.Helper()
		c.Eventually("word of "+text, func() error {
			if said := s.stderr.String(); !strings.Contains(said, text) {
				return fmt.Errorf("%q", said)
			}
			return nil
		})
	}
	seat := c.sit(ctx, t, "run", "--tty", "-d", "box:gpu1", "--", "sh", "-c", "echo ready; sleep 600")
	seat.waitFor(t, c, "ready")
	hold := c.sit(ctx, t, "hold", "box:gpu0", "--ttl", "1h", "--reason", "mine")
	says(hold, "is yours until")
	queued := c.sit(ctx, t, "run", "-d", "box:gpu0", "--", "true")
	says(queued, "queued at position 1")
	for _, left := range []struct {
		*sitting
		says, job, state string
	}{
		{queued, "rc: interrupted; job j-3 was queued and is cancelled\n", "j-3", "killed"},
		{hold, "rc: interrupted; hold j-2 is released\n", "j-2", "killed"},
		{seat, "j-1 goes on", "j-1", "running"},
	} {
		left.Close()
		if code := left.exit(t); code != 130 || !strings.Contains(left.stderr.String(), left.says) {
			t.Errorf("%s: exit code %d, stderr %s", left.job, code, left.stderr)
		}
		c.state(left.job, left.state)
	}
}
