package agent

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcd/model"
	"rcd/relay"
	"rcd/wire"
)

// attached are the ways to connect a job to a person or a program.
func attached(t *testing.T) map[string]model.Stdio {
	ways := map[string]model.Stdio{"pipe": model.StdioPipe}
	if fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0); err != nil {
		t.Logf("no terminals on this machine: %v", err)
	} else {
		_ = unix.Close(fd)
		ways["tty"] = model.StdioTTY
	}
	return ways
}

func TestAnAttachedJobRunsAndItsOutputIsRead(t *testing.T) {
	c := newControl(t)
	startAgent(t, testConfig(dataDir(t), c))
	eventually(t, "an agent", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.hellos) == 1 })
	n := uint64(0)
	for name, stdio := range attached(t) {
		n++
		c.want(n, func(s *wire.StartJob) { s.Stdio, s.Env = uint8(stdio), map[string]string{"RC_TTY_SIZE": "100x30"} },
			"sh", "-c", `test -t 1 && stty size && echo "$TERM"; seq 1000; echo err >&2; exit 6`)
		got, end := c.output(t, model.JobID(n), 0, true)
		var want strings.Builder
		if name == "tty" {
			want.WriteString("30 100\nxterm-256color\n")
		}
		for i := 1; i <= 1000; i++ {
			fmt.Fprintln(&want, i)
		}
		want.WriteString("err\n")
		if got = strings.ReplaceAll(got, "\r\n", "\n"); got != want.String() || !end.Complete {
			t.Errorf("%s: %d bytes, %.60q…, %+v", name, len(got), got, end)
		}
		if o := c.outcome(t, n); o.ExitCode == nil || *o.ExitCode != 6 {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// A follower is what lets an attached job go on; one who only looks is not.
func TestAFollowerLetsAnAttachedJobGoOn(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	first := startAgent(t, config)
	const lines = 500_000 // 3.4 MB
	c.want(1, func(s *wire.StartJob) { s.Stdio = uint8(model.StdioPipe) }, "seq", fmt.Sprint(lines))
	var held string
	eventually(t, "held back", func() bool {
		if !c.isRunning(1) {
			return false
		}
		held, _ = c.output(t, "j-1", 0, false)
		return len(held) >= 1<<20
	})
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := c.hub.OpenStream(ctx, "box")
	if err != nil {
		t.Fatal(err)
	}
	if err := relay.Ask(conn, 0, wire.StreamOpen{Job: "j-1", Follow: true}); err != nil {
		t.Fatal(err)
	}
	enough := fmt.Errorf("read enough")
	next, _, _ := relay.Receive(ctx, conn, 0, relay.SinkFunc(func(_ context.Context, r relay.Record) error {
		if d, ok := r.(relay.Data); ok && d.Offset > 3<<19 {
			return enough
		}
		return nil
	}))
	if next <= int64(len(held)) {
		t.Fatalf("read to %d of a job that was held back at %d", next, len(held))
	}
	first.stop()
	c.lead(2)
	startAgent(t, config)
	eventually(t, "an agent", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.hellos) == 2 })
	rest, end := c.output(t, "j-1", next, true)
	if !end.Complete || !strings.HasSuffix(rest, fmt.Sprintf("\n%d\n", lines)) || end.Length != next+int64(len(rest)) {
		t.Errorf("from %d: %d bytes, %+v", next, len(rest), end)
	}
	if o := c.outcome(t, 1); o.ExitCode == nil || *o.ExitCode != 0 || o.OutputGap {
		t.Errorf("%+v", o)
	}
}
