package agent

import (
	"bytes"
	"log/slog"
	"sync"
)

// logBook keeps what is logged.
type logBook struct {
	mu    sync.Mutex // guards what follows
	lines bytes.Buffer
}

func (b *logBook) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.lines.Write(p)
	}), nil))
}

func (b *logBook) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lines.String()
}
