package raftnode

import (
	"bytes"
	"context"
	"io"
	"log/slog"

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
		Name: "raft", Level: level, Output: lineWriter{logger}, DisableTime: true,
	})
}

type lineWriter struct{ logger *slog.Logger }

var _ io.Writer = lineWriter{}

// levels are hclog's prefixes. Raft's errors are mostly peers that cannot be
// reached, which is daily life here: they are warnings.
var levels = []struct {
	prefix string
	level  slog.Level
}{
	{"[ERROR]", slog.LevelWarn}, {"[WARN]", slog.LevelWarn}, {"[INFO]", slog.LevelInfo}, {"[DEBUG]", slog.LevelDebug},
}

// Write gets one line of hclog's output.
func (w lineWriter) Write(line []byte) (int, error) {
	text, level := bytes.TrimSpace(line), slog.LevelInfo
	for _, l := range levels {
		if rest, ok := bytes.CutPrefix(text, []byte(l.prefix)); ok {
			text, level = bytes.TrimSpace(rest), l.level
			break
		}
	}
	w.logger.Log(context.Background(), level, string(text))
	return len(line), nil
}
