package api

import (
	"context"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"rcd/wire"
)

// Limits of the edge. Whoever meets one is told so (503 overloaded) or, for
// times, gets the answer that the time left allows.
const (
	// requestDeadline bounds a request that needs a leader. A failover takes
	// 10 ms to 2 s, so that most requests live through one without notice.
	requestDeadline = 5 * time.Second

	// retryPause is the least time between two tries of one request: a leader
	// that has just been elected refuses until its epoch has begun.
	retryPause = 10 * time.Millisecond

	// bodyDeadline bounds how long a client may take to send its body.
	bodyDeadline = 10 * time.Second

	// answerDeadline bounds each write of an answer, as the ancestor's did.
	answerDeadline = 10 * time.Second

	// maxWrites bounds requests whose bodies (up to 1 MiB) are in memory.
	maxWrites = 512

	// maxReaders bounds open log and stream requests. Each costs a relay
	// window of about 1 MiB at the worst.
	maxReaders = 4096
)

// Config says who this node is.
type Config struct {
	NodeID   string
	Instance string // UUID of this process, new at each start
	Tokens   Tokens
	Logger   *slog.Logger
	// EventsTokenInURL lets a reader of events that cannot set a header, a
	// browser's EventSource, give its token as ?token=. URLs end up in logs and
	// histories, so it is off unless somebody wants it.
	EventsTokenInURL bool
}

// New returns the handler of the /v1 API for clients. It serves until the
// process ends and owns nothing; requests under way end with their contexts.
func New(config Config, backend Backend) http.Handler {
	s := newServer(config, backend)
	s.register()
	return s
}

// NewInternal returns the handler for other controllers, to be served only on
// the authenticated forward channel: the routes of New that a follower hands
// on, with the caller as that follower names it, and the calls of Internal. It
// never forwards again and never waits for a leader: the edge that the client
// asked does both.
func NewInternal(config Config, backend Backend, internal Internal) http.Handler {
	s := newServer(config, backend)
	s.internal = true
	s.register()
	s.internalRoutes(internal)
	return s
}

type server struct {
	Config
	backend  Backend
	internal bool
	mux      *http.ServeMux
	documented
	writes  chan struct{} // a slot for each request that changes something
	readers chan struct{} // a slot for each log or stream
	waiters chan struct{} // a slot for each read that waits for a change
}

func newServer(config Config, backend Backend) *server {
	return &server{
		Config:  config,
		backend: backend,
		mux:     http.NewServeMux(),
		writes:  make(chan struct{}, maxWrites),
		readers: make(chan struct{}, maxReaders),
		waiters: make(chan struct{}, maxWaiters),
	}
}

// ServeHTTP names the node on every answer and turns a panic into one.
func (s *server) ServeHTTP(plain http.ResponseWriter, r *http.Request) {
	w := &answer{ResponseWriter: plain}
	w.Header().Set(wire.HeaderInstance, s.Instance)
	w.Header().Set(wire.HeaderNode, s.NodeID)
	if !s.internal {
		dropForwardHeaders(r.Header)
	}
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		if p == http.ErrAbortHandler {
			panic(p)
		}
		s.Logger.Error("request handler panicked", "method", r.Method, "path", r.URL.Path, "panic", p, "stack", string(debug.Stack()))
		if w.begun {
			// Part of an answer is out. To end it here would make it look whole.
			panic(http.ErrAbortHandler)
		}
		s.fail(w, r, refuse(http.StatusInternalServerError, wire.CodeStoreError,
			"controller %s failed at this request, its log says how; ask another node, and report it", s.NodeID))
	}()
	s.mux.ServeHTTP(w, r)
}

// handler answers a request whose caller is known. An error it returns is
// answered for it, unless the answer has begun.
type handler func(w http.ResponseWriter, r *http.Request, who Identity) error

// handle admits callers of the role, and admins.
func (s *server) handle(role Role, h handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who, err := s.identify(r)
		if err == nil && who.Role != role && who.Role != RoleAdmin {
			err = refuse(http.StatusForbidden, wire.CodeForbidden,
				"a token of role %s may not do this; use one of role %s", who.Role, role)
		}
		if err == nil {
			err = h(w, r, who)
		}
		if err != nil {
			s.fail(w, r, err)
		}
	}
}

func (s *server) identify(r *http.Request) (Identity, error) {
	if s.internal {
		return forwardedIdentity(r.Header)
	}
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	inURL := r.URL.Path == pathEvents && r.URL.Query().Has("token")
	switch {
	case strings.EqualFold(scheme, "Bearer"):
	case inURL && s.EventsTokenInURL:
		secret = r.URL.Query().Get("token")
	case inURL:
		return Identity{}, refuse(http.StatusUnauthorized, wire.CodeUnauthorized,
			"tokens in URLs are off on this controller; send Authorization: Bearer TOKEN, or start it with --events-token-in-url")
	default:
		secret = ""
	}
	if who, ok := s.Tokens.Identify(strings.TrimSpace(secret)); ok {
		return who, nil
	}
	return Identity{}, refuse(http.StatusUnauthorized, wire.CodeUnauthorized,
		"no token, or one that this cluster does not know; send Authorization: Bearer TOKEN with a token from RC_TOKENS of the controllers")
}

// whileLeader returns a context that ends when what l says is no longer true,
// so that nobody waits for a leader that is gone. The function ends it and
// waits for the goroutine behind it.
func whileLeader(ctx context.Context, l Leader, cause error) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case <-l.Changed:
			cancel(cause)
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		cancel(nil)
		<-ended
	}
}

// pause waits a moment before a request is tried again, or until ctx ends; it
// reports whether to try. After a failed try there is either no leader, or one
// that is not ready, or another one is already known.
func pause(ctx context.Context) bool {
	timer := time.NewTimer(retryPause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
