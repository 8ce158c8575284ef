package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"rcd/wire"
)

const (
	// eventsAlive is the time between two comments on a stream without events.
	// Each comes after a read that the leader has confirmed, so that a reader
	// is never left with a node that hears of nothing.
	eventsAlive = 5 * time.Second

	// eventsAtOnce is how many events are written before the reader's pace is
	// looked at, eventsPause the least time between two writes, so that a busy
	// cluster's events travel in batches.
	eventsAtOnce = 256
	eventsPause  = 10 * time.Millisecond

	pathEvents = "/v1/events"

	// longestEventID bounds what a reader may return with.
	longestEventID = 64
)

// reader is where one reader of events stands.
type reader struct {
	topics     map[topic]bool
	at         eventID
	generation uint64
	reset      *wire.EventReset // to be told first
}

// streamEvents answers with the event log as server-sent events: from where
// the reader left off, else from now on.
func (s *server) streamEvents(w http.ResponseWriter, r *http.Request, _ Identity) error {
	select {
	case s.readers <- struct{}{}:
		defer func() { <-s.readers }()
	default:
		return errOverloaded
	}
	topics, err := wantsTopics(r)
	if err != nil {
		return err
	}
	if err := checkLastID(r); err != nil {
		return err
	}
	// Whatever a reader was told before has been committed, so a state that the
	// leader confirms now is not behind it.
	v, err := s.viewFor(r, false)
	if err != nil {
		return err
	}
	at := startAt(r, v)
	at.topics = topics
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no") // a proxy that gathers events delays them for ever
	w.WriteHeader(http.StatusOK)
	return s.tellEvents(r.Context(), newLogWriter(w), at)
}

// wantsTopics reads the kinds that the reader wants.
func wantsTopics(r *http.Request) (map[topic]bool, error) {
	want := map[topic]bool{}
	for _, name := range strings.Split(r.URL.Query().Get("kinds"), ",") {
		if t, known := topics[name]; known {
			want[t] = true
		} else if name != "" {
			return nil, badRequest("kinds: %q is unknown; use some of %s", name, strings.Join(slices.Sorted(maps.Keys(topics)), ", "))
		}
	}
	if len(want) == 0 {
		want = map[topic]bool{kindJobs: true, kindDevices: true}
	}
	return want, nil
}

// lastID is what the reader returns with, in the header that browsers send or
// in the query.
func lastID(r *http.Request) string {
	if id := r.Header.Get("Last-Event-ID"); id != "" {
		return id
	}
	return r.URL.Query().Get("last_event_id")
}

func checkLastID(r *http.Request) error {
	id := lastID(r)
	if _, _, ok := parseEventID(id, 0); id != "" && (!ok || len(id) > longestEventID) {
		return badRequest("Last-Event-ID is none of ours; use the id of an event, the Rc-Index of an answer, or leave it out to begin now")
	}
	return nil
}

func startAt(r *http.Request, v *view) reader {
	generation := v.Generation()
	now := reader{at: after(v.Index()), generation: generation}
	text := lastID(r)
	if text == "" {
		return now
	}
	id, of, _ := parseEventID(text, generation)
	switch {
	case of != generation:
		now.reset = &wire.EventReset{From: text, Reason: "the cluster was restored since; what you know of it is of another history"}
	case id.index > v.Index():
		now.reset = &wire.EventReset{From: text, Reason: "the cluster has not come to this event, so it is of another history"}
	default:
		now.at = id
	}
	return now
}

// tellEvents writes events until ctx ends, the reader takes nothing any more,
// or this node has lost the cluster. The end of the stream is no event: the
// reader comes back, here or elsewhere, with the last ID.
func (s *server) tellEvents(ctx context.Context, out *logWriter, at reader) error {
	tick := time.NewTicker(eventsAlive)
	defer tick.Stop()
	alive := true // say so now, with the place where the reader begins
	for {
		raw, news, err := at.next(s.backend.Events(), alive)
		if err != nil {
			return err
		}
		alive = false
		if len(raw) > 0 {
			if _, err := out.Write(raw); err != nil {
				return nil // the reader is gone or stuck, and comes again
			}
			if err := out.flush(); err != nil {
				return nil
			}
			if !pauseFor(ctx, eventsPause, nil) {
				return nil
			}
		}
		select {
		case <-news:
		case <-tick.C:
			if !s.inTouch(ctx) {
				_, _ = out.Write([]byte(": this controller has lost the cluster; ask another one, with the last id\n\n"))
				return nil
			}
			alive = true
		case <-ctx.Done():
			return nil
		}
	}
}

// inTouch reports whether what this node has is confirmed by a leader. After
// it, everything that was committed before is in the log.
func (s *server) inTouch(ctx context.Context) bool {
	if s.backend.Halted() != "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, requestDeadline)
	defer cancel()
	for {
		if _, err := s.viewOnce(ctx, ReadOptions{}); err == nil {
			return true
		}
		if !pause(ctx) {
			return false
		}
	}
}

// next is what the reader is sent next, which moves it on, and what tells of
// more. With alive there is something in any case, if only a comment with the
// place that the reader has come to: of a quiet stream too it must not fall out
// of the log.
func (at *reader) next(log *EventLog, alive bool) ([]byte, <-chan struct{}, error) {
	var out bytes.Buffer
	p := log.after(at.at, eventsAtOnce)
	if at.reset == nil && (!p.whole || p.generation != at.generation) {
		at.reset = &wire.EventReset{
			From:   at.at.text(at.generation),
			Reason: "this controller does not have all events since; it keeps a bounded number of them, and none from before its snapshot",
		}
		at.at, at.generation = log.end()
	}
	if at.reset != nil {
		raw, err := json.Marshal(at.reset)
		if err != nil {
			return nil, nil, fmt.Errorf("encode reset: %w", err)
		}
		at.reset = nil
		err = writeEvent(&out, wire.Event{
			Kind: wire.EventResets, At: time.Now().UTC(), Payload: raw, ID: at.at.text(at.generation), Event: "reset",
		})
		return out.Bytes(), closed, err
	}
	for _, r := range p.records {
		if !at.topics[eventKinds[r.kind].of] {
			continue
		}
		event, err := r.wireEvent(p.generation)
		if err == nil {
			err = writeEvent(&out, event)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	at.at = p.next
	if alive && out.Len() == 0 {
		fmt.Fprintf(&out, ": alive\nid: %s\n\n", at.at.text(at.generation))
	}
	return out.Bytes(), p.news, nil
}

// writeEvent writes a message. Events carry no type, which is what the
// ancestor's readers listen to; a reset, which they know nothing of, has one.
func writeEvent(out *bytes.Buffer, event wire.Event) error {
	raw, err := json.Marshal(event)
	if err != nil {
		return fmt.Errorf("encode event %s: %w", event.ID, err)
	}
	if event.Kind == wire.EventResets {
		out.WriteString("event: reset\n")
	}
	fmt.Fprintf(out, "id: %s\ndata: %s\n\n", event.ID, raw)
	return nil
}
