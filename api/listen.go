package api

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// Serve serves handler on l until ctx ends or l fails, with the bounds that
// keep a slow or silent peer from holding a connection for nothing. Ending ctx
// ends every request, streams included; when Serve returns l is closed and no
// handler runs any more. The error is nil after ctx has ended.
func Serve(ctx context.Context, l net.Listener, handler http.Handler, logger *slog.Logger) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	tracked := &tracker{handler: handler}
	httpServer := &http.Server{
		Handler:           tracked,
		BaseContext:       func(net.Listener) context.Context { return within },
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	unwatch := context.AfterFunc(ctx, func() { httpServer.Close() })
	err := httpServer.Serve(l)
	ended := !unwatch()
	cancel()
	httpServer.Close()
	tracked.close()
	if ended {
		return nil
	}
	return fmt.Errorf("serve HTTP on %s: %w", l.Addr(), err)
}

// tracker knows which handlers run: http.Server waits for none that have taken
// their connection over.
type tracker struct {
	handler http.Handler

	mu      sync.Mutex // guards closed, and the first Add against the Wait
	closed  bool
	running sync.WaitGroup
}

func (t *tracker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	t.running.Add(1)
	t.mu.Unlock()
	defer t.running.Done()
	t.handler.ServeHTTP(w, r)
}

// close lets no handler begin any more and waits for those that have.
func (t *tracker) close() {
	t.mu.Lock()
	t.closed = true
	t.mu.Unlock()
	t.running.Wait()
}
