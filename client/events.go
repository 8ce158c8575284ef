package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"time"
)

const (
	// eventSilence is how long a stream of events may bring nothing before the
	// next node is asked: four of the comments that keep it alive.
	eventSilence = 20 * time.Second

	// maxEvent bounds one event in bytes. One of 10,000 devices has under 10 MB.
	maxEvent = 32 << 20

	// headerLastEventID is how a reader of server-sent events says where it was.
	headerLastEventID = "Last-Event-ID"
)

// Event is one change of the cluster's state.
type Event struct {
	// ID names the event; a reader that comes back with it gets what came
	// after. Empty from controllers that give none.
	ID string `json:"id,omitempty"`
	// Reset says that events may be missing before this one: look at the state
	// anew. Of the fields below it may have any or none.
	Reset bool      `json:"reset,omitempty"`
	Kind  string    `json:"kind,omitempty"` // "jobs" or "devices"
	At    time.Time `json:"at,omitzero"`
	// Name says what happened and DeviceID to which device, from controllers
	// that say so.
	Name     string `json:"event,omitempty"`
	DeviceID string `json:"device_id,omitempty"`
	// Payload is JSON in the shape of the kind; nil for none.
	Payload json.RawMessage `json:"payload,omitempty"`
}

// EventsOptions say where to begin.
type EventsOptions struct {
	// LastEventID is the ID of the last event that is known; "" begins with
	// what comes next.
	LastEventID string
}

// errEventTooLong ends a stream: another node would send the same.
var errEventTooLong = fmt.Errorf("an event is over %d MiB; look at the state instead", maxEvent>>20)

// Events hands each event to take, in order, until ctx ends, take returns an
// error or no controller has answered for the long patience; it survives the
// node it reads from. After a break it goes on behind the last event; where
// that cannot be had, because the controllers give no IDs or have let go of so
// old an event, take gets an event with Reset set.
//
// It returns the ID to go on behind and the reason of the end, which is never
// nil: take's error as it is, an *APIError, an *OutageError or the context's
// error.
func (c *Client) Events(ctx context.Context, o EventsOptions, take func(Event) error) (last string, err error) {
	e := &eventReader{client: c, last: o.LastEventID, take: take, lostAt: time.Now()}
	idle := coolMin
	for {
		if err := e.open(ctx); err != nil {
			return e.last, err
		}
		err := e.read()
		switch {
		case e.ended != nil:
			return e.last, e.ended
		case ctx.Err() != nil:
			return e.last, context.Cause(ctx)
		}
		if time.Since(e.linkedAt) >= establishedAfter {
			e.established() // nothing may happen for long
		}
		if e.lostAt.IsZero() {
			idle, e.lostAt = coolMin, time.Now()
			if errors.As(err, new(*noAnswerError)) {
				e.lostAt = e.lostAt.Add(-eventSilence)
			}
		} else {
			idle = min(2*idle, coolMax)
		}
		e.lostErr = err
		c.shun(e.at)
		if err := pause(ctx, jitter(idle)); err != nil {
			return e.last, err
		}
	}
}

// eventReader is the state of one Events. Its methods run in the goroutine
// that called Events.
type eventReader struct {
	client *Client
	last   string
	take   func(Event) error
	ended  error // why there is no point in going on

	body     *eventBody
	at, from *node     // of the present link; of the last that proved itself
	linkedAt time.Time // when the present link was made
	lostAt   time.Time // since when no link has proved itself; zero if this one has
	lostErr  error
}

// eventBody is an answer that goes on. Its deadline is put off by every line.
type eventBody struct {
	*http.Response
	limit *deadline
}

func (b *eventBody) close() {
	b.limit.stop()
	b.Body.Close()
}

// open finds a node that sends events.
func (e *eventReader) open(ctx context.Context) error {
	c := e.client
	patience := c.longPatience - time.Since(e.lostAt)
	if patience <= 0 {
		return c.outage(ctx, e.lostAt, []Failure{{e.at.base, e.lostErr}}, "", false)
	}
	body, by, failures, err := (&chase[*eventBody]{
		nodes: c.inOrder(), hedge: readHedge, patience: patience,
		try: func(try context.Context, n *node, connected func()) (*eventBody, error) {
			return e.ask(ctx, try, n, connected)
		},
		classify: classify, discard: (*eventBody).close,
		waiting: c.waitingNotice(e.lostAt, c.longPatience), waitAfter: c.waitAfter(),
	}).run(ctx)
	switch {
	case by == nil:
		return c.outage(ctx, e.lostAt, failures, "", false)
	case err != nil:
		return err
	}
	c.prefer(by)
	e.body, e.at, e.linkedAt = body, by, time.Now()
	return nil
}

// ask asks one node. The answer outlives the attempt, and ends with ctx.
func (e *eventReader) ask(ctx, try context.Context, n *node, connected func()) (*eventBody, error) {
	c := e.client
	limit := newDeadline(ctx, answerTimeout)
	tied := context.AfterFunc(try, func() { limit.cancel(context.Cause(try)) })
	req, err := c.request(limit.ctx, n, call{method: http.MethodGet, path: "/v1/events"})
	if err != nil {
		limit.stop()
		return nil, err
	}
	if e.last != "" {
		req.Header.Set(headerLastEventID, e.last)
	}
	traced := httptrace.WithClientTrace(limit.ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { connected() },
	})
	resp, err := c.http.Do(req.WithContext(traced))
	if err != nil {
		tied()
		defer limit.stop()
		return nil, limit.explain(err)
	}
	body := &eventBody{Response: resp, limit: limit}
	n.learn(resp.Header)
	if resp.StatusCode >= 200 && resp.StatusCode < 300 && tied() {
		limit.timer.Reset(eventSilence)
		return body, nil
	}
	tied()
	defer body.close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, refusalBody))
	if err != nil {
		return nil, limit.explain(err)
	}
	return nil, refusal(n, resp, text)
}

// read takes events until the link breaks, and returns why it did.
func (e *eventReader) read() error {
	defer e.body.close()
	lines := bufio.NewReaderSize(e.body.Body, 32<<10)
	if e.from != nil && e.last == "" {
		// It has been here before, and cannot say what it has seen.
		if e.ended = e.take(Event{Reset: true}); e.ended != nil {
			return e.ended
		}
	}
	var m message
	for {
		line, err := m.line(lines)
		if err != nil {
			if errors.Is(err, errEventTooLong) {
				e.ended = err
			}
			return e.body.limit.explain(err)
		}
		e.body.limit.timer.Reset(eventSilence)
		e.established()
		if len(line) > 0 {
			m.add(line)
			continue
		}
		if err := e.deliver(&m); err != nil {
			return err
		}
		m = message{}
	}
}

// deliver hands on a whole message. One without data only says where the
// reader is.
func (e *eventReader) deliver(m *message) error {
	if m.data != nil || m.name == eventReset {
		event, err := m.event()
		if err == nil {
			err = e.take(event)
		}
		if err != nil {
			e.ended = err // asked again, the controllers would send the same
			return err
		}
	}
	if m.id != "" {
		e.last = m.id
	}
	return nil
}

// established tells of a change once the new link has brought anything, or
// has lived for a while.
func (e *eventReader) established() {
	if e.lostAt.IsZero() {
		return
	}
	if e.from != nil {
		e.client.tell(Notice{Kind: NoticeResumed, From: e.from.label(), To: e.at.label(), After: e.linkedAt.Sub(e.lostAt)})
	}
	e.from, e.lostAt = e.at, time.Time{}
}

// message is one server-sent event as its lines come.
type message struct {
	id, name string
	data     []byte
	size     int
}

// line reads one line, without its end, and keeps the message in bounds.
func (m *message) line(from *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := from.ReadSlice('\n')
		line = append(line, part...)
		if m.size += len(part); m.size > maxEvent {
			return nil, errEventTooLong
		}
		switch {
		case err == nil:
			return bytes.TrimRight(line, "\r\n"), nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}

// add takes a line that is not empty.
func (m *message) add(line []byte) {
	field, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(field) {
	case "": // a comment
		m.size -= len(line)
	case "id":
		m.id = string(value)
	case "event":
		m.name = string(value)
	case "data":
		if m.data != nil {
			m.data = append(m.data, '\n')
		}
		m.data = append(m.data, value...)
		if m.data == nil {
			m.data = []byte{}
		}
	}
}

// eventReset is the name of the message that stands for missing ones.
const eventReset = "reset"

// event reads the message's data. What a reset says besides is for people.
func (m *message) event() (Event, error) {
	var e Event
	reset := m.name == eventReset
	if err := json.Unmarshal(m.data, &e); err != nil && !reset {
		return e, fmt.Errorf("event %q of the controllers: %w; they may be of another version than this client", m.id, err)
	}
	e.ID, e.Reset = m.id, reset
	return e, nil
}
