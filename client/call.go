package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"rcd/wire"
)

// maxAnswer bounds an answer's body in bytes. The whole queue comes in one
// answer (GET /v1/state): 100,000 jobs of 1 KiB are under half of it.
const maxAnswer = 256 << 20

// errNotYet stands for a node that has been asked and is silent so far.
var errNotYet = errors.New("no answer yet")

// call is one logical request.
type call struct {
	method, path string // path with query, escaped
	body         []byte // nil for none
	requestID    string // not empty: this changes something
	patience     time.Duration
	only         *node // not nil: ask nobody else
	// waits is how long a node may keep the answer back because it was asked
	// to; all other times come on top.
	waits time.Duration
	// enough, if not nil, ends the search early; see chase.
	enough func([]Failure) bool
}

// answer is a successful response, read to its end.
type answer struct {
	body   []byte
	header http.Header
}

// get asks for path and decodes the JSON answer into v.
func (c *Client) get(ctx context.Context, path string, v any) error {
	return c.do(ctx, call{method: http.MethodGet, path: path, patience: c.patience}, v)
}

// do carries out one call: on any node, as often as it takes, with one effect.
// v is nil if the answer's body does not matter.
func (c *Client) do(ctx context.Context, r call, v any) error {
	_, err := c.decoded(ctx, r, v)
	return err
}

// decoded is do that returns the answer as well.
func (c *Client) decoded(ctx context.Context, r call, v any) (answer, error) {
	a, err := c.answer(ctx, r)
	if err != nil || v == nil {
		return a, err
	}
	if err := json.Unmarshal(a.body, v); err != nil {
		return a, fmt.Errorf("answer to %s %s: %w; the controllers may be of another version than this client", r.method, r.path, err)
	}
	return a, nil
}

// checkPath refuses a path with an ID in it that a server would take for
// another path: an empty one, of an unset variable in a script, or a dot.
func checkPath(path string) error {
	path, _, _ = strings.Cut(path, "?")
	for _, part := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
		if part == "" || part == "." || part == ".." {
			return &APIError{Status: http.StatusBadRequest, Code: wire.CodeBadRequest,
				Message: fmt.Sprintf("%q is the ID of nothing; rc jobs and rc devices list what there is", part)}
		}
	}
	return nil
}

func (c *Client) answer(ctx context.Context, r call) (answer, error) {
	if err := checkPath(r.path); err != nil {
		return answer{}, err
	}
	nodes, hedge := c.inOrder(), readHedge
	if r.requestID != "" {
		hedge = writeHedge
	}
	var maybe atomic.Bool // the change may have happened
	begun := time.Now()
	hedge, r.patience = hedge+r.waits, r.patience+r.waits
	waiting := c.waitingNotice(begun, r.patience)
	if r.only != nil {
		nodes, waiting = []*node{r.only}, nil
	}
	a, by, failures, err := (&chase[answer]{
		nodes: nodes, hedge: hedge, patience: r.patience,
		try: func(ctx context.Context, n *node, connected func()) (answer, error) {
			return c.exchange(ctx, n, r, connected, &maybe)
		},
		classify: classify, discard: func(answer) {},
		waiting: waiting, waitAfter: c.waitAfter() + r.waits,
		settle: r.requestID != "", enough: r.enough,
	}).run(ctx)
	if by == nil {
		return answer{}, c.outage(ctx, begun, failures, r.requestID, maybe.Load())
	}
	if r.only == nil {
		c.prefer(by)
	}
	var refused *APIError
	if errors.As(err, &refused) {
		refused.RequestID = r.requestID
	}
	return a, err
}

// outage makes the error of a search that found nobody.
func (c *Client) outage(ctx context.Context, begun time.Time, failures []Failure, requestID string, maybe bool) error {
	position := func(f Failure) int {
		return slices.IndexFunc(c.nodes, func(n *node) bool { return n.base == f.Address })
	}
	slices.SortFunc(failures, func(a, b Failure) int { return position(a) - position(b) })
	return &OutageError{
		Waited: time.Since(begun), Failures: failures,
		RequestID: requestID, Unknown: requestID != "" && maybe,
		cause: context.Cause(ctx),
	}
}

func (c *Client) waitAfter() time.Duration {
	if c.everReached() {
		return waitNotice
	}
	return firstWaitNotice
}

func (c *Client) waitingNotice(begun time.Time, patience time.Duration) func([]Failure) {
	return func(failures []Failure) {
		c.tell(Notice{Kind: NoticeWaiting, After: time.Since(begun), Patience: patience, Failures: failures})
	}
}

// classify sorts the failure of an attempt. Whatever is not a refusal is a
// failure of the way to the node or of the node itself.
func classify(err error) class {
	var refusal *APIError
	if !errors.As(err, &refusal) {
		return nextNode
	}
	switch {
	case refusal.Code == wire.CodeOverloaded && refusal.Status == http.StatusServiceUnavailable:
		return overloaded
	case refusal.Status == http.StatusBadGateway, refusal.Status == http.StatusServiceUnavailable,
		refusal.Status == http.StatusGatewayTimeout:
		return nextNode
	}
	return final
}

// exchange is one attempt at one node. maybe is set when the attempt fails in
// a way that leaves open whether a change happened.
func (c *Client) exchange(ctx context.Context, n *node, r call, connected func(), maybe *atomic.Bool) (answer, error) {
	limit := newDeadline(ctx, answerTimeout+r.waits)
	defer limit.stop()
	var written atomic.Bool
	traced := httptrace.WithClientTrace(limit.ctx, &httptrace.ClientTrace{
		GotConn:      func(httptrace.GotConnInfo) { connected() },
		WroteHeaders: func() { written.Store(true) },
	})
	req, err := c.request(traced, n, r)
	if err != nil {
		return answer{}, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if written.Load() {
			maybe.Store(true)
		}
		return answer{}, limit.explain(err)
	}
	defer resp.Body.Close()
	body, err := limit.readAll(resp.Body)
	if err != nil {
		maybe.Store(true)
		return answer{}, limit.explain(err)
	}
	n.learn(resp.Header)
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return answer{body, resp.Header}, nil
	}
	err = refusal(n, resp, body)
	var api *APIError
	if !errors.As(err, &api) || api.Status == http.StatusGatewayTimeout || api.Status == http.StatusBadGateway {
		maybe.Store(true)
	}
	return answer{}, err
}

// request makes the HTTP request of r to n.
func (c *Client) request(ctx context.Context, n *node, r call) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, r.method, n.base+r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, err
	}
	if r.body == nil {
		req.Body, req.GetBody, req.ContentLength = nil, nil, 0
	} else {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	if r.requestID != "" {
		req.Header.Set(wire.HeaderRequestID, r.requestID)
	}
	return req, nil
}

// refusal turns a response that is no success into an error: an *APIError if a
// controller spoke, else something in between did, and it is a failure of the
// node like any other.
func refusal(n *node, resp *http.Response, body []byte) error {
	var e wire.Error
	if json.Unmarshal(body, &e) == nil && e.Code != "" {
		after, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // a date is not understood, and says nothing then
		return &APIError{Status: resp.StatusCode, Code: e.Code, Message: e.Message, Node: n.label(),
			RetryAfter: time.Duration(max(after, 0)) * time.Second}
	}
	if resp.Header.Get(wire.HeaderInstance) == "" {
		return &brokenAnswerError{fmt.Sprintf("HTTP %d from something that is no controller", resp.StatusCode)}
	}
	code := "http_" + fmt.Sprint(resp.StatusCode)
	if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed {
		return &APIError{Status: resp.StatusCode, Code: code, Node: n.label(),
			Message: "the controller does not know this request; it may be of an older version than this client"}
	}
	return &APIError{Status: resp.StatusCode, Code: code, Message: http.StatusText(resp.StatusCode), Node: n.label()}
}

// deadline ends a context with noAnswerError when nothing has come for a time.
type deadline struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

func newDeadline(ctx context.Context, after time.Duration) *deadline {
	ctx, cancel := context.WithCancelCause(ctx)
	return &deadline{ctx: ctx, cancel: cancel,
		timer: time.AfterFunc(after, func() { cancel(&noAnswerError{after}) })}
}

func (d *deadline) stop() {
	d.timer.Stop()
	d.cancel(context.Canceled)
}

// explain returns why the deadline's context ended, if it did, else err.
func (d *deadline) explain(err error) error {
	var late *noAnswerError
	if cause := context.Cause(d.ctx); errors.As(cause, &late) {
		return late
	}
	return err
}

// readAll reads a body whose every part must come within bodyTimeout of the
// one before.
func (d *deadline) readAll(body io.Reader) ([]byte, error) {
	var all bytes.Buffer
	part := make([]byte, 32<<10)
	for {
		d.timer.Reset(bodyTimeout)
		n, err := body.Read(part)
		all.Write(part[:n])
		switch {
		case errors.Is(err, io.EOF):
			return all.Bytes(), nil
		case err != nil:
			return nil, err
		case all.Len() > maxAnswer:
			return nil, &brokenAnswerError{fmt.Sprintf("an answer over %d MiB", maxAnswer>>20)}
		}
	}
}
