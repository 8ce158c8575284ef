package api

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"rcd/raftnode"
	"rcd/wire"
)

// answer remembers whether any of an answer is out.
type answer struct {
	http.ResponseWriter
	begun bool
}

// WriteHeader passes on and remembers.
func (a *answer) WriteHeader(status int) {
	a.begun = true
	a.ResponseWriter.WriteHeader(status)
}

// Write passes on and remembers.
func (a *answer) Write(p []byte) (int, error) {
	a.begun = true
	return a.ResponseWriter.Write(p)
}

// Unwrap lets an http.ResponseController reach flushing, hijacking and
// deadlines.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func begun(w http.ResponseWriter) bool {
	a, ok := w.(*answer)
	return ok && a.begun
}

// reply is a whole answer that has not been written yet: status, the value of
// its JSON body (nil for none) and what it reflects.
type reply struct {
	status int
	body   any
	index  uint64
	leader string

	contentType string // with raw: an answer of the leader's, handed on as it is
	raw         []byte
}

func (s *server) send(w http.ResponseWriter, rep reply) error {
	raw, contentType := rep.raw, rep.contentType
	if rep.body != nil {
		var err error
		if raw, err = json.Marshal(rep.body); err != nil {
			return err
		}
		raw, contentType = append(raw, '\n'), "application/json"
	}
	if rep.index > 0 {
		w.Header().Set(wire.HeaderIndex, strconv.FormatUint(rep.index, 10))
	}
	if rep.leader != "" {
		w.Header().Set(wire.HeaderLeader, rep.leader)
	}
	if contentType != "" {
		w.Header().Set("Content-Type", contentType)
	}
	// Here, because an answer of the leader's that is handed on has none.
	if rep.status == http.StatusServiceUnavailable || rep.status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(raw)))
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(answerDeadline)) // a recorder in tests has none
	w.WriteHeader(rep.status)
	_, err := w.Write(raw)
	_ = control.Flush()
	_ = control.SetWriteDeadline(time.Time{})
	if err != nil {
		s.Logger.Debug("answer not delivered", "err", err)
	}
	return nil // the client is gone: there is nobody to tell
}

// fail answers with an error. What is no refusal of ours is a failure.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if begun(w) {
		s.Logger.Debug("answer broken off", "method", r.Method, "path", r.URL.Path, "err", err)
		panic(http.ErrAbortHandler) // so that it does not look whole
	}
	// The client may be gone, or only what it sent too slow: to return without
	// an answer would make one that says 200.
	var no *refusal
	switch {
	case errors.As(err, &no):
	case errors.Is(err, raftnode.ErrOverloaded):
		no = errOverloaded
	default:
		s.Logger.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
		no = refuse(http.StatusInternalServerError, wire.CodeStoreError,
			"controller %s could not answer (%v); ask another node", s.NodeID, err)
	}
	if no.status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	_ = s.send(w, reply{status: no.status, body: wire.Error{Code: no.code, Message: no.message}})
}
