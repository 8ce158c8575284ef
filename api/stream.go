package api

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"rcd/model"
	"rcd/raftnode"
	"rcd/relay"
	"rcd/wire"
)

// restWithin is how long a read that does not follow waits for output that is
// not to be had at once (DESIGN section 4, law 8).
const restWithin = 10 * time.Second

// output is what a request for a job's bytes asks for.
type output struct {
	job    *model.Job
	offset int64
	follow bool
	index  uint64
	attach *wire.StreamOpen // of an attached stream; nil for stored output
	// submitter is whom an attached stream writes as.
	submitter string
}

func (s *server) wantsOutput(r *http.Request, _ Identity) (output, error) {
	offset, err := intParam(r, "offset", 0, math.MaxInt64, 0)
	if err != nil {
		return output{}, err
	}
	follow, err := boolParam(r, "follow", true)
	if err != nil {
		return output{}, err
	}
	v, err := s.viewFor(r, false)
	if err != nil {
		return output{}, err
	}
	job, err := v.job(r.PathValue("id"))
	if err != nil {
		return output{}, err
	}
	if job.Stdio != model.StdioLogs {
		return output{}, refuse(http.StatusBadRequest, wire.CodeLogsNotStored,
			"%s has its streams attached (%s), so that nothing is stored; read it where it is attached", job.ID(), job.Stdio)
	}
	if job.State.Terminal() && job.OutputKnown && uint64(offset) > job.OutputLength {
		return output{}, badRequest("offset %d lies after the end of the output of %s, which has %d bytes", offset, job.ID(), job.OutputLength)
	}
	return output{job: job, offset: offset, follow: follow, index: v.Index()}, nil
}

// logs answers with a job's output as plain bytes.
func (s *server) logs(w http.ResponseWriter, r *http.Request, who Identity) error {
	return s.output(w, r, who, s.wantsOutput, s.serveLogs, s.passLogs)
}

var errUpgradeRequired = refuse(http.StatusUpgradeRequired, wire.CodeBadRequest,
	"ask for the stream over HTTP/1.1 with Connection: Upgrade and Upgrade: %s, or read the job's logs route", relay.UpgradeProtocol)

// stream answers with a job's output in frames, resumable at any offset.
func (s *server) stream(w http.ResponseWriter, r *http.Request, who Identity) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), relay.UpgradeProtocol) {
		return errUpgradeRequired
	}
	return s.output(w, r, who, s.wantsOutput, s.serveStream, s.passStream)
}

// output serves bytes on the leader, whose agents have them, and elsewhere from
// a copy or by passing the leader's through. Until the first byte is out another leader may be
// waited for; after that a reader comes again at its offset.
func (s *server) output(w http.ResponseWriter, r *http.Request, who Identity, wants wantFunc, serve serveFunc, pass passFunc) error {
	select {
	case s.readers <- struct{}{}:
		defer func() { <-s.readers }()
	default:
		return errOverloaded
	}
	want, err := wants(r, who)
	if err != nil {
		return s.toldToEdge(w, err)
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestDeadline)
	defer cancel()
	for {
		if err := s.ifHalted(); err != nil && !s.internal {
			return err
		}
		err := s.outputOnce(ctx, w, r, who, want, serve, pass)
		var no *refusal
		switch {
		case err == nil, begun(w), errors.As(err, &no):
			return err
		case s.internal:
			return s.toldToEdge(w, err)
		case !pause(ctx):
			s.Logger.Debug("output not served in time", "path", r.URL.Path, "err", err)
			return s.noLeader(ctx)
		}
	}
}

// wantFunc reads what a request asks for. serveFunc answers from this node's own agents; passFunc with what another
// controller answered. An error before any of the answer is out may be tried
// again.
type (
	wantFunc  func(r *http.Request, who Identity) (output, error)
	serveFunc func(w http.ResponseWriter, r *http.Request, want output) error
	passFunc  func(w http.ResponseWriter, r *http.Request, resp *http.Response) error
)

// outputOnce answers as long as the leader stays what it is; ctx bounds the
// time until the answer begins.
func (s *server) outputOnce(ctx context.Context, w http.ResponseWriter, r *http.Request, who Identity, want output, serve serveFunc, pass passFunc) error {
	leader := s.backend.Leader()
	within, done := whileLeader(r.Context(), leader, &relay.MovedError{})
	defer done()
	if leader.Self {
		return serve(w, r.WithContext(within), want)
	}
	if !s.internal && want.attach == nil && want.job.State.Terminal() {
		// A copy of this node's own spares everybody the way.
		if err := serve(w, r, want); !errors.Is(err, raftnode.ErrNotLeader) {
			return err
		}
	}
	if leader.ID == "" || leader.ID == s.NodeID || s.internal {
		return raftnode.ErrNotLeader
	}
	resp, err := s.askOutput(ctx, within, leader, r, who, want)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return pass(w, r.WithContext(within), resp)
}

// toldToEdge marks an answer to another controller, where err is no answer for
// its client, so that it tries again.
func (s *server) toldToEdge(w http.ResponseWriter, err error) error {
	if again, _ := retryable(err); s.internal && again {
		w.Header().Set(headerRefused, refusedNotLeader)
		return errNoLeader
	}
	return err
}

// askOutput asks the leader for the same output under the job's full ID. The
// answer's body ends with life; asking ends with ctx too.
func (s *server) askOutput(ctx, life context.Context, leader Leader, r *http.Request, who Identity, want output) (*http.Response, error) {
	life, cancel := context.WithCancel(life)
	unwatch := context.AfterFunc(ctx, cancel)
	framed, route := true, "/stream"
	switch {
	case want.attach != nil:
		route = "/attach"
	case !strings.HasSuffix(r.URL.Path, route):
		framed, route = false, "/logs"
	}
	path := "/v1/jobs/" + want.job.ID() + route + "?offset=" + strconv.FormatInt(want.offset, 10) + "&follow=" + strconv.FormatBool(want.follow)
	if want.attach != nil {
		path += "&" + want.attachQuery()
	}
	deadline, _ := ctx.Deadline()
	out, err := forwardRequest(life, http.MethodGet, path, who, nil, deadline)
	if err != nil {
		cancel()
		return nil, err
	}
	if framed {
		out.Header.Set("Connection", "Upgrade")
		out.Header.Set("Upgrade", relay.UpgradeProtocol)
	}
	resp, err := s.backend.Forward(leader.ID).RoundTrip(out)
	if err != nil {
		cancel()
		return nil, err
	}
	if !unwatch() {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = refusedBy(resp)
	}
	if err != nil {
		resp.Body.Close()
		cancel()
		return nil, err
	}
	resp.Body = &ownedBody{ReadCloser: resp.Body, release: cancel}
	return resp, nil
}

// ownedBody ends the context of a request with its answer's body.
type ownedBody struct {
	io.ReadCloser
	release context.CancelFunc
}

// Write writes to an upgraded connection.
func (b *ownedBody) Write(p []byte) (int, error) {
	w, ok := b.ReadCloser.(io.Writer)
	if !ok {
		return 0, errors.ErrUnsupported
	}
	return w.Write(p)
}

// Close closes the body and ends the request's context.
func (b *ownedBody) Close() error {
	err := b.ReadCloser.Close()
	b.release()
	return err
}
