package raftnode

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// raftLogger passes raft's lines on to logger, with their level. Raft logs
// key and value pairs in its own text form, which stays as the message.
func raftLogger(logger *slog.Logger) hclog.Logger {
	level := hclog.Error
	for _, l := range []struct {
		slog  slog.Level
		hclog hclog.Level
	}{{slog.LevelWarn, hclog.Warn}, {slog.LevelInfo, hclog.Info}, {slog.LevelDebug, hclog.Debug}} {
		if logger.Enabled(context.Background(), l.slog) {
			level = l.hclog
		}
	}
	return hclog.New(&hclog.LoggerOptions{
		Name: "raft", Level: level, Output: newLineWriter(logger), DisableTime: true,
	})
}

const (
	// failureEvery is how often one failure with one peer is logged. Raft logs
	// each heartbeat to a peer that is down or has another key: four lines a
	// second, for as long as that lasts.
	failureEvery = time.Minute

	// maxFailures bounds the failures kept. Members times kinds of failure are
	// far below it, so past it everything begins anew.
	maxFailures = 256
)

type lineWriter struct {
	logger *slog.Logger

	mu       sync.Mutex // guards failures
	failures map[string]failureTally
}

type failureTally struct {
	logged  time.Time
	leftOut int // since then
}

var _ io.Writer = (*lineWriter)(nil)

func newLineWriter(logger *slog.Logger) *lineWriter {
	return &lineWriter{logger: logger, failures: map[string]failureTally{}}
}

// levels are hclog's prefixes. Raft's errors are mostly peers that cannot be
// reached, which is daily life here: they are warnings.
var levels = []struct {
	prefix string
	level  slog.Level
}{
	{"[ERROR]", slog.LevelWarn}, {"[WARN]", slog.LevelWarn}, {"[INFO]", slog.LevelInfo}, {"[DEBUG]", slog.LevelDebug},
}

// Write gets one line of hclog's output.
func (w *lineWriter) Write(line []byte) (int, error) {
	text, level := bytes.TrimSpace(line), slog.LevelInfo
	for _, l := range levels {
		if rest, ok := bytes.CutPrefix(text, []byte(l.prefix)); ok {
			text, level = bytes.TrimSpace(rest), l.level
			break
		}
	}
	var args []any
	if bytes.HasPrefix(text, []byte("raft: failed to ")) && !w.logger.Enabled(context.Background(), slog.LevelDebug) {
		leftOut, due := w.count(failureKey(text), time.Now())
		if !due {
			return len(line), nil
		}
		if leftOut > 0 {
			args = append(args, "not_logged", leftOut)
		}
	}
	w.logger.Log(context.Background(), level, string(text), args...)
	return len(line), nil
}

// count returns whether to log a failure, and how many like it were not logged
// since the last.
func (w *lineWriter) count(key string, now time.Time) (leftOut int, due bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	tally, known := w.failures[key]
	if known && now.Sub(tally.logged) < failureEvery {
		tally.leftOut++
		w.failures[key] = tally
		return 0, false
	}
	if !known && len(w.failures) >= maxFailures {
		clear(w.failures)
	}
	w.failures[key] = failureTally{logged: now}
	return tally.leftOut, true
}

// changing are the parts of a failure that differ each time: how long it has
// lasted or will be waited, the term, and this side's port.
var changing = regexp.MustCompile(`\b(time|term)=\S+|\S+->`)

func failureKey(text []byte) string { return string(changing.ReplaceAll(text, nil)) }
