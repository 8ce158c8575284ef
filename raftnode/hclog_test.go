package raftnode

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAPeerThatFailsForLongIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := raftLogger(slog.New(slog.NewTextHandler(&text, nil)))
		for i := range 4 * 90 { // a minute and a half
			log.Error("failed to heartbeat to", "peer", "c3", "backoff time", time.Duration(i)*time.Millisecond, "error",
				fmt.Sprintf("read tcp 127.0.0.1:%d->127.0.0.1:7000: connection reset by peer", 40000+i))
			log.Error("failed to heartbeat to", "peer", "c2", "backoff time", time.Duration(i)*time.Millisecond, "error", "unauthorized")
			log.Warn("failed to contact", "server-id", "c3", "time", time.Duration(i)*time.Millisecond)
			if i%180 == 0 {
				log.Info("entering candidate state")
			}
			time.Sleep(250 * time.Millisecond)
		}
		for line, want := range map[string]int{"peer=c3": 2, "peer=c2": 2, "server-id=c3": 2, "not_logged=239": 3, "candidate": 2} {
			if got := strings.Count(text.String(), line); got != want {
				t.Errorf("%d lines with %q, want %d:\n%s", got, line, want, &text)
			}
		}
	})
}

func TestDebugLogsEveryFailure(t *testing.T) {
	var text bytes.Buffer
	log := raftLogger(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug})))
	for range 3 {
		log.Error("failed to heartbeat to", "peer", "c3", "error", "EOF")
	}
	if got := strings.Count(text.String(), "heartbeat"); got != 3 {
		t.Errorf("%d lines, want 3:\n%s", got, &text)
	}
}
