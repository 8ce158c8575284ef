package api

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/relay"
	"rcd/wire"
)

// awayWithin is how long a host without a session is waited for before the
// client is told to ask again: after a failover agents come within it.
const awayWithin = 3 * time.Second

// attach joins a client to a job's terminal or pipe: its output from any offset
// on and, for one writer, its input, in frames both ways.
func (s *server) attach(w http.ResponseWriter, r *http.Request, who Identity) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), relay.UpgradeProtocol) {
		return refuse(http.StatusUpgradeRequired, wire.CodeBadRequest,
			"ask for the stream over HTTP/1.1 with Connection: Upgrade and Upgrade: %s", relay.UpgradeProtocol)
	}
	return s.output(w, r, who, s.wantsAttach, s.serveAttach, s.passStream)
}

// attachQuery is the part of a request to the leader that says who writes.
func (o output) attachQuery() string {
	q := url.Values{
		"writer": {strconv.FormatUint(o.attach.Writer, 10)}, "take_over": {strconv.FormatBool(o.attach.TakeOver)},
		"input_only": {strconv.FormatBool(o.attach.InputOnly)}, "submitter": {o.submitter},
	}
	if o.attach.Window > 0 {
		q.Set("window", strconv.FormatUint(uint64(o.attach.Window), 10))
	}
	return q.Encode()
}

func (s *server) wantsAttach(r *http.Request, who Identity) (output, error) {
	offset, err := intParam(r, "offset", 0, math.MaxInt64, 0)
	if err != nil {
		return output{}, err
	}
	takeOver, err := boolParam(r, "take_over", false)
	if err != nil {
		return output{}, err
	}
	inputOnly, err := boolParam(r, "input_only", false)
	if err != nil {
		return output{}, err
	}
	window, err := intParam(r, "window", 0, math.MaxUint32, 0)
	if err != nil {
		return output{}, err
	}
	var writer uint64
	if text := r.URL.Query().Get("writer"); text != "" {
		if writer, err = strconv.ParseUint(text, 10, 64); err != nil || takeOver && writer > 0 {
			return output{}, badRequest("writer is the number that an earlier connection was told; to get one ask with take_over=true, without writer")
		}
	}
	v, err := s.viewFor(r, false)
	if err != nil {
		return output{}, err
	}
	job, err := v.job(r.PathValue("id"))
	if err != nil {
		return output{}, err
	}
	writes := takeOver || writer > 0
	if !writes {
		window = 0
	}
	submitter := r.URL.Query().Get("submitter")
	switch {
	case job.Stdio == model.StdioLogs:
		return output{}, refuse(http.StatusBadRequest, wire.CodeNotAttachable,
			"%s has neither a terminal nor a pipe; its output is stored: read its logs", job.ID())
	case writes && who.Role != RoleAdmin && submitter != job.Submitter:
		return output{}, refuse(http.StatusForbidden, string(command.NotJobOwner),
			"%s is of %s; only its submitter and an admin write to it, others look on", job.ID(), job.Submitter)
	case job.State == model.JobQueued:
		return output{}, refuse(http.StatusConflict, wire.CodeNotPlaced, "%s is queued; attach once it is placed", job.ID())
	}
	return output{job: job, offset: offset, follow: true, index: v.Index(), submitter: submitter, attach: &wire.StreamOpen{
		Job: job.ID(), Follow: true, Attach: true, Writer: writer, TakeOver: takeOver, InputOnly: inputOnly && writes,
		Window: uint32(window),
	}}, nil
}

// reach opens the agent's end on the leader, nil for a job that has ended and
// whose host is gone.
func (s *server) reach(ctx context.Context, want output) (io.ReadWriteCloser, error) {
	far, err := s.attached(ctx, want)
	var refusal *wire.StreamError
	switch {
	case errors.As(err, &refusal):
		return nil, refuse(http.StatusBadRequest, refusal.Code, "%s", refusal.Message)
	case !errors.Is(err, ErrHostAway):
		return far, err
	case s.latest(ctx, want.job).State.Terminal():
		return nil, nil
	}
	return nil, refuse(http.StatusServiceUnavailable, wire.CodeNotReady,
		"host %s of %s is not connected to the leader; ask again, the job is not judged by that", want.job.Host, want.job.ID())
}

// serveAttach joins the client's connection to the agent's, on the leader.
func (s *server) serveAttach(w http.ResponseWriter, r *http.Request, want output) error {
	far, err := s.reach(r.Context(), want)
	if err != nil {
		return err
	}
	if far != nil {
		defer far.Close()
	}
	s.outputHeaders(w, want)
	near, err := relay.Upgrade(w, r)
	if errors.Is(err, relay.ErrUpgradeRequired) {
		return errUpgradeRequired
	}
	takenOver(w)
	switch {
	case err != nil:
		return err
	case far == nil:
		return relay.Send(r.Context(), near, want.offset, s.withoutHost(r.Context(), want), relay.SendOptions{Input: ignoreInput})
	}
	splice(r.Context(), near, far)
	return nil
}

func ignoreInput(wire.Frame) error { return nil }

// attached opens the stream, waiting for the host a little.
func (s *server) attached(ctx context.Context, want output) (io.ReadWriteCloser, error) {
	if want.job.Host == "" { // it ended before it had one
		return nil, ErrHostAway
	}
	within, cancel := context.WithTimeout(ctx, awayWithin)
	defer cancel()
	for {
		conn, err := s.backend.Attach(within, want.job, want.offset, *want.attach)
		if err == nil {
			return conn, nil
		}
		if !errors.Is(err, ErrHostAway) || !pause(within) {
			return nil, err
		}
	}
}

// withoutHost is the end of a stream whose host is gone: the job has ended, and
// nobody has what it wrote last.
func (s *server) withoutHost(ctx context.Context, want output) relay.Source {
	job := s.latest(ctx, want.job)
	end := wire.StreamEnd{State: job.State.String(), Reason: "host " + want.job.Host + " is out of reach"}
	if job.Host == "" || job.OutputKnown && uint64(want.offset) == job.OutputLength {
		end.Complete, end.Reason = true, ""
	}
	return endOnly{relay.End{Length: want.offset, StreamEnd: end}}
}

// endOnly is a source that has nothing but its End.
type endOnly struct{ end relay.End }

// Next returns the End.
func (e endOnly) Next(context.Context) (relay.Record, error) { return e.end, nil }
