package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"rcd/model"
	"rcd/relay"
	"rcd/wire"
)

const (
	// establishedAfter is how long a new link must have lived, if it brought no
	// output, before the reader is told that output goes on: a node that takes
	// a link only to close it again is not worth a line.
	establishedAfter = time.Second

	// refusalBody bounds the body of an answer that is no upgrade.
	refusalBody = 64 << 10
)

// OutputError wraps what a caller's writer returned, so that nobody takes it
// for the end of the stream.
type OutputError struct{ Err error }

// Error returns the writer's error with where it came from.
func (e *OutputError) Error() string { return fmt.Sprintf("write output: %v", e.Err) }

// Unwrap returns the writer's error.
func (e *OutputError) Unwrap() error { return e.Err }

// Gap is a range of a job's output that exists nowhere any more.
type Gap struct {
	From, To int64
	Cause    string
}

// Line returns the gap as the raw logs route marks it, with its end of line.
func (g Gap) Line() string {
	return fmt.Sprintf("[rc: %d bytes missing: %s]\n", g.To-g.From, oneLine(g.Cause))
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// StreamOptions say where a job's output goes.
type StreamOptions struct {
	// Stdout and Stderr take the bytes of each stream, in the order of their
	// offsets; they may be the same writer, and either may be nil. A writer
	// that blocks holds the stream back, and loses nothing.
	Stdout, Stderr io.Writer
	// From is the offset to begin at, in the one offset space of both streams.
	From int64
	// Stored asks only for what is there now, instead of following the job to
	// its end.
	Stored bool
	// Gap, if not nil, is called for each gap between the writes around it; an
	// error of it ends the stream like one of a writer.
	Gap func(Gap) error
}

// StreamEnd is how a stream ended.
type StreamEnd struct {
	Length   int64  // offset at which it ended
	State    string // of the job then
	Complete bool   // the job is over, and this is the length of its output
	Reason   string // if not Complete: what is missing
}

// Stream copies a job's output until the job has ended and all of it has come,
// or all that exists, with gaps reported. It survives the node it reads from,
// and any other: it goes on at the next byte through whoever answers, gives up
// only after the long patience without anybody, and tells Options.Notify one
// line per change.
//
// It returns the offset to go on at, everything before which has been written,
// and the end or the reason why there is none: an *APIError (no such job), an
// *OutageError, an *OutputError or the context's error. None of them says
// anything about the job.
func (c *Client) Stream(ctx context.Context, id string, o StreamOptions) (next int64, end StreamEnd, err error) {
	if err := checkPath(jobPath(id, "")); err != nil {
		return o.From, StreamEnd{}, err
	}
	return (&stream{client: c, id: id, options: o}).follow(ctx)
}

func (s *stream) follow(ctx context.Context) (next int64, end StreamEnd, err error) {
	s.lostAt = time.Now()
	options := relay.FollowOptions{
		Notice:      s.noticed,
		DialTimeout: s.client.longPatience + answerTimeout, // dial bounds itself
	}
	if s.input != nil {
		options.Input = s.input.heard
	}
	next, last, err := relay.Follow(ctx, s.dial, s.options.From, relay.SinkFunc(s.take), options)
	if err != nil {
		return next, StreamEnd{}, translate(err)
	}
	return next, StreamEnd{Length: last.Length, State: last.State, Complete: last.Complete, Reason: last.Reason}, nil
}

// Logs copies a job's output to out, stdout and stderr in one as they came,
// with a line for each gap. Without follow it copies what there is now; a job
// that has just ended may take up to 10 s for its last bytes. Jobs with an
// attached terminal or pipe have no stored output (logs_not_stored).
func (c *Client) Logs(ctx context.Context, id string, out io.Writer, follow bool) error {
	text := &lineEnds{w: out}
	_, end, err := c.Stream(ctx, id, StreamOptions{
		Stdout: text, Stderr: text, Stored: !follow,
		Gap: func(g Gap) error { return text.mark(g.Line()) },
	})
	if err != nil {
		return err
	}
	if state, known := model.ParseJobState(end.State); known && state.Terminal() && !end.Complete {
		if err := text.mark(fmt.Sprintf("[rc: bytes missing: %s]\n", oneLine(end.Reason))); err != nil {
			return &OutputError{Err: err}
		}
	}
	return nil
}

// lineEnds is a writer that knows whether it stands at the beginning of a line,
// where marks belong.
type lineEnds struct {
	w      io.Writer
	inLine bool
}

func (l *lineEnds) Write(p []byte) (int, error) {
	if len(p) > 0 {
		l.inLine = p[len(p)-1] != '\n'
	}
	return l.w.Write(p)
}

func (l *lineEnds) mark(line string) error {
	if l.inLine {
		line = "\n" + line
	}
	_, err := io.WriteString(l, line)
	return err
}

// translate turns relay's errors into this package's.
func translate(err error) error {
	var sink *relay.SinkError
	var refusal *wire.StreamError
	switch {
	case errors.As(err, &sink):
		return &OutputError{Err: sink.Err}
	case errors.As(err, &refusal):
		return &APIError{Code: refusal.Code, Message: refusal.Message}
	}
	return err
}

// stream is the state of one Stream. All of its methods run in the goroutine
// that called Stream.
type stream struct {
	client  *Client
	id      string
	options StreamOptions
	input   *input // of an attached stream; nil for stored output

	from     *node     // of the last established link, nil before the first
	at       *node     // of the present or the last link, nil before the first
	linkedAt time.Time // when that link was made
	heardAt  time.Time // when that link last brought anything
	lostErr  error     // why that link was lost, nil while it is not
	lostAt   time.Time // since when there is no established link; zero if there is one
	moved    bool      // what is lost was lost by a change of leader
}

// take writes one record.
func (s *stream) take(_ context.Context, record relay.Record) error {
	s.established()
	switch r := record.(type) {
	case relay.Data:
		w := s.options.Stdout
		if r.Stream == wire.StreamStderr {
			w = s.options.Stderr
		}
		if w == nil {
			return nil
		}
		_, err := w.Write(r.Bytes)
		return err
	case relay.Gap:
		if s.options.Gap != nil {
			return s.options.Gap(Gap{From: r.From, To: r.To, Cause: r.Cause})
		}
	}
	return nil
}

// heard is called when bytes have come over the present link.
func (s *stream) heard() {
	s.heardAt = time.Now()
	if s.heardAt.Sub(s.linkedAt) >= establishedAfter {
		s.established()
	}
}

// established tells of a change once the new link has proved itself.
func (s *stream) established() {
	if s.lostAt.IsZero() {
		return
	}
	if s.from != nil {
		s.client.tell(Notice{
			Kind: NoticeResumed, From: s.from.label(), To: s.at.label(),
			Moved: s.moved, After: time.Since(s.lostAt),
		})
	}
	s.from, s.lostAt, s.moved = s.at, time.Time{}, false
}

// noticed learns why a link was lost.
func (s *stream) noticed(n relay.Notice) {
	if n.Resumed || s.at == nil {
		return
	}
	s.lostErr = n.Err
	if s.lostAt.IsZero() {
		s.lostAt = time.Now()
		if errors.Is(n.Err, relay.ErrPeerSilent) {
			s.lostAt = s.heardAt // output stood still since then
		}
		s.moved = isMoved(n.Err)
	}
}

func isMoved(err error) bool {
	var moved *relay.MovedError
	return errors.As(err, &moved)
}

// dial finds a node that gives the output from offset on. How long it looks
// counts from the last link that was established, so that nodes which take
// links only to close them again use patience up too.
func (s *stream) dial(ctx context.Context, offset int64) (relay.Conn, error) {
	c := s.client
	if s.at != nil {
		if s.lostAt.IsZero() {
			s.lostAt = time.Now()
		}
		if s.lostErr == nil {
			s.lostErr = relay.ErrLinkLost
		}
		if !isMoved(s.lostErr) { // a node that sends on is alive, and knows where to
			c.shun(s.at)
		}
	}
	patience := c.longPatience - time.Since(s.lostAt)
	if patience <= 0 {
		return nil, relay.Permanent(c.outage(ctx, s.lostAt, []Failure{{s.at.base, s.lostErr}}, "", false))
	}
	conn, by, failures, err := (&chase[net.Conn]{
		nodes: c.inOrder(), hedge: readHedge, patience: patience,
		try: func(ctx context.Context, n *node, connected func()) (net.Conn, error) {
			return c.openStream(ctx, n, s.path(offset), connected)
		},
		classify: classify, discard: func(conn net.Conn) { conn.Close() },
		waiting: c.waitingNotice(s.lostAt, c.longPatience), waitAfter: c.waitAfter(),
	}).run(ctx)
	switch {
	case by == nil:
		return nil, relay.Permanent(c.outage(ctx, s.lostAt, failures, "", false))
	case err != nil:
		return nil, relay.Permanent(err)
	}
	c.prefer(by)
	now := time.Now()
	s.at, s.linkedAt, s.heardAt, s.lostErr = by, now, now, nil
	if s.input != nil {
		s.input.linked(conn)
	}
	return &heardConn{Conn: conn, heard: s.heard}, nil
}

func (s *stream) path(offset int64) string {
	q := url.Values{"offset": {strconv.FormatInt(offset, 10)}}
	if s.input != nil {
		s.input.ask(q)
		return jobPath(s.id, "/attach?") + q.Encode()
	}
	if s.options.Stored {
		q.Set("follow", "false")
	}
	return jobPath(s.id, "/stream?") + q.Encode()
}

// openStream asks one node for the byte route.
func (c *Client) openStream(ctx context.Context, n *node, path string, connected func()) (net.Conn, error) {
	limit := newDeadline(ctx, answerTimeout)
	defer limit.stop()
	req, err := c.request(limit.ctx, n, call{method: http.MethodGet, path: path})
	if err != nil {
		return nil, err
	}
	conn, resp, err := relay.DialUpgrade(limit.ctx, req, func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := c.dialNode(ctx, n, network, address)
		if err == nil {
			connected()
		}
		return conn, err
	})
	switch {
	case err == nil:
		n.learn(resp.Header)
		return conn, nil
	case resp == nil:
		return nil, limit.explain(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, refusalBody))
	if err != nil {
		return nil, limit.explain(err)
	}
	n.learn(resp.Header)
	if resp.StatusCode < 300 {
		return nil, &brokenAnswerError{fmt.Sprintf("HTTP %d where a stream was asked for", resp.StatusCode)}
	}
	return nil, refusal(n, resp, body)
}

// dialNode connects as the HTTP transport would.
func (c *Client) dialNode(ctx context.Context, n *node, network, address string) (net.Conn, error) {
	conn, err := c.dial(ctx, network, address)
	if err != nil || n.url.Scheme != "https" {
		return conn, err
	}
	secure := tls.Client(conn, &tls.Config{ServerName: n.url.Hostname()})
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return secure, nil
}

// heardConn reports bytes as they come.
type heardConn struct {
	net.Conn
	heard func()
}

func (c *heardConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.heard()
	}
	return n, err
}
