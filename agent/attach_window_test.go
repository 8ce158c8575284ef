package agent

import (
	"testing"
	"time"

	"rcd/model"
	"rcd/wire"
)

// sends writes n bytes of input from offset at on, in frames as a writer does.
func (s *seated) sends(at, n int) error {
	for n > 0 {
		p := make([]byte, min(n, 64<<10))
		if err := wire.WriteFrame(s.conn, wire.Frame{Type: wire.FrameInput, Stream: wire.StreamStdin, Offset: int64(at), Payload: p}); err != nil {
			return err
		}
		at, n = at+len(p), n-len(p)
	}
	return nil
}

func TestInputBeyondTheWindowIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		asked, told uint32
		window      int
	}{
		"nothing asked": {0, 0, wire.InputWindow},
		"too little":    {1, wire.InputWindow, wire.InputWindow},
		"some":          {300_000, 300_000, 300_000},
		"too much":      {1 << 30, wire.MaxInputWindow, wire.MaxInputWindow},
	} {
		t.Run(name, func(t *testing.T) {
			c := newControl(t)
			startAgent(t, testConfig(dataDir(t), c))
			eventually(t, "an agent", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.hellos) == 1 })
			c.want(1, func(s *wire.StartJob) { s.Stdio = uint8(model.StdioPipe) }, "sleep", "600")
			s := c.attach(t, wire.StreamOpen{Job: "j-1", TakeOver: true, Window: tt.asked}, nil)
			eventually(t, "a number", func() bool { _, writer, _ := s.look(); return writer > 0 })
			s.mu.Lock()
			told := s.window
			s.mu.Unlock()
			if told != tt.told {
				t.Fatalf("a window of %d, want %d", told, tt.told)
			}
			// Nothing more is acked once the pipe and the shim are full. Until then,
			// and then, a whole window may come, and not a byte more.
			sent, beyond, quiet := 0, 0, time.Now()
			for begun := time.Now(); ; time.Sleep(time.Millisecond) {
				select {
				case err := <-s.done:
					if beyond == 0 || err == nil {
						t.Errorf("with %d bytes beyond the window: %v", beyond, err)
					}
					c.kill(1)
					return
				default:
				}
				_, _, acked := s.look()
				if to := int(acked) + tt.window + beyond; sent < to {
					if err := s.sends(sent, to-sent); err != nil && beyond == 0 {
						t.Fatal(err)
					}
					sent, quiet = to, time.Now()
				} else if time.Since(quiet) > time.Second {
					beyond = 1
				}
				if time.Since(begun) > time.Minute {
					t.Fatalf("%d bytes, %d of them acked, and the stream goes on", sent, acked)
				}
			}
		})
	}
}

func TestATerminalGetsNoMoreThanTheUsualWindow(t *testing.T) {
	if _, ok := attached(t)["tty"]; !ok {
		t.Skip("no terminals")
	}
	c := newControl(t)
	startAgent(t, testConfig(dataDir(t), c))
	eventually(t, "an agent", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.hellos) == 1 })
	c.want(1, terminalWith(), "sleep", "600")
	s := c.attach(t, wire.StreamOpen{Job: "j-1", TakeOver: true, Window: wire.MaxInputWindow}, nil)
	eventually(t, "a number", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.writer > 0 })
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.window != wire.InputWindow {
		t.Errorf("a window of %d", s.window)
	}
	c.kill(1)
}
