package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"rcd/wire"
)

// sends answers with a stream of events, one text each, and then either closes
// it or stays silent.
func sends(stay bool, events ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		for _, text := range events {
			fmt.Fprint(w, text)
		}
		_ = http.NewResponseController(w).Flush()
		if stay {
			<-r.Context().Done()
		}
	}
}

func event(id, state string) string {
	if id != "" {
		id = "id: " + id + "\n"
	}
	return id + `data: {"kind":"jobs","at":"2026-01-02T03:04:05.5Z","payload":{"job_id":"j-1","state":"` + state + `"}}` + "\n\n"
}

var errSeenEnough = errors.New("seen enough")

// events reads until an event of the last state has come, and returns each as
// a word.
func events(t *testing.T, c *Client, o EventsOptions, until string) (seen []string, last string, err error) {
	t.Helper()
	last, err = c.Events(t.Context(), o, func(e Event) error {
		word := e.ID + string(e.Payload)
		if e.Reset {
			word = "reset" + e.ID + string(e.Payload)
		}
		if _, state, ok := strings.Cut(string(e.Payload), `"state":"`); ok {
			word = e.ID + ":" + strings.TrimSuffix(state, `"}`)
		}
		seen = append(seen, word)
		if strings.HasSuffix(word, until) {
			return errSeenEnough
		}
		return nil
	})
	return seen, last, err
}

func TestEventsGoOnBehindTheLastOneOnAnotherNode(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", sends(false, ": hello\n\n", event("7.0", "queued"), event("7.1", "assigned"), "id: 8.0\ndata: {\"ki"))
		n.serve(t, "b:1", "c2", func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get(headerLastEventID); got != "7.1" {
				t.Errorf("asked for what comes after %q", got)
			}
			sends(true, event("8.0", "running"))(w, r)
		})
		c, seen := n.client(t, Options{})
		got, last, err := events(t, c, EventsOptions{}, "running")
		if !errors.Is(err, errSeenEnough) || !slices.Equal(got, []string{"7.0:queued", "7.1:assigned", "8.0:running"}) {
			t.Fatalf("events %q, error %v", got, err)
		}
		if last != "7.1" { // the one refused was not taken
			t.Fatalf("to go on behind %q", last)
		}
		if all := seen.all(); len(all) != 1 || all[0].From != "c1" || all[0].To != "c2" {
			t.Fatalf("notices %v", all)
		}
	})
}

func TestEventsBeginBehindTheOneGivenAndPassAResetOn(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", func(w http.ResponseWriter, r *http.Request) {
			if got := r.Header.Get(headerLastEventID); got != "3.1" {
				t.Errorf("asked for what comes after %q", got)
			}
			sends(true, "id: 9.0\nevent: reset\ndata: {\"payload\":{\"reason\":\"old\"}}\n\n", event("9.1", "running"))(w, r)
		})
		c, _ := n.client(t, Options{})
		got, last, _ := events(t, c, EventsOptions{LastEventID: "3.1"}, "running")
		if !slices.Equal(got, []string{`reset9.0{"reason":"old"}`, "9.1:running"}) || last != "9.0" {
			t.Fatalf("events %q, to go on behind %q", got, last)
		}
	})
}

// The ancestor's controllers gave no IDs: what happened in a break is lost, and
// must not look as if nothing had.
func TestABreakWithoutEventIDsIsAReset(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", sends(false, event("", "queued")))
		n.serve(t, "b:1", "c2", sends(true, event("", "running")))
		c, _ := n.client(t, Options{})
		got, _, _ := events(t, c, EventsOptions{}, "running")
		if !slices.Equal(got, []string{":queued", "reset", ":running"}) {
			t.Fatalf("events %q", got)
		}
	})
}

func TestAPlaceWithoutAnEventIsRemembered(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", sends(false, ": alive\nid: 5.0\n\n"))
		n.serve(t, "b:1", "c2", func(w http.ResponseWriter, r *http.Request) {
			sends(true, event(r.Header.Get(headerLastEventID)+"+", "running"))(w, r)
		})
		c, _ := n.client(t, Options{})
		got, _, _ := events(t, c, EventsOptions{}, "running")
		if !slices.Equal(got, []string{"5.0+:running"}) {
			t.Fatalf("events %q", got)
		}
	})
}

func TestEventsOfANodeThatFallsSilentComeFromTheNext(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", sends(true, event("1.0", "queued")))
		n.serve(t, "b:1", "c2", sends(true, event("1.1", "running")))
		c, _ := n.client(t, Options{})
		begun := time.Now()
		if got, _, _ := events(t, c, EventsOptions{}, "running"); len(got) != 2 {
			t.Fatalf("events %q", got)
		}
		if took := time.Since(begun); took < eventSilence {
			t.Fatalf("given up after %v", took)
		}
		within(t, begun, eventSilence+5*time.Second)
	})
}

func TestEventsOutlastAnOutageAndGiveUpAfterTheLongPatience(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", sends(false, event("1.0", "queued")))
		c, _ := n.client(t, Options{})
		var back time.Time
		_, err := c.Events(t.Context(), EventsOptions{}, func(e Event) error {
			n.put("a:1", refuse)
			c.Close()
			if e.ID == "1.0" {
				go func() {
					time.Sleep(4 * time.Minute)
					n.serve(t, "b:1", "c2", sends(false, event("1.1", "running")))
				}()
				return nil
			}
			back = time.Now()
			n.put("b:1", refuse)
			c.Close()
			return nil
		})
		if !errors.Is(err, ErrUnreachable) || back.IsZero() {
			t.Fatalf("error %v, back at %v", err, back)
		}
		if took := time.Since(back); took < DefaultLongPatience {
			t.Fatalf("given up after %v", took)
		}
	})
}

// A node that takes links only to close them uses up patience.
func TestANodeThatOnlyClosesItsEventsIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", sends(false))
		c, _ := n.client(t, Options{LongPatience: time.Minute})
		begun := time.Now()
		if _, err := c.Events(t.Context(), EventsOptions{}, nil); !errors.Is(err, ErrUnreachable) {
			t.Fatalf("error %v", err)
		}
		within(t, begun, 2*time.Minute)
	})
}

func TestARefusalEndsEvents(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", func(w http.ResponseWriter, _ *http.Request) { answerError(w, 403, wire.CodeForbidden) })
		c, _ := n.client(t, Options{})
		_, err := c.Events(t.Context(), EventsOptions{}, nil)
		wantCode(t, err, 403, wire.CodeForbidden)
	})
}

func TestEventsEndWithTheirContext(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", sends(true, event("1.0", "queued")))
		c, _ := n.client(t, Options{})
		ctx, cancel := context.WithCancelCause(t.Context())
		last, err := c.Events(ctx, EventsOptions{}, func(Event) error {
			time.AfterFunc(time.Second, func() { cancel(errSeenEnough) })
			return nil
		})
		if last != "1.0" || !errors.Is(err, errSeenEnough) {
			t.Fatalf("last %q, error %v", last, err)
		}
	})
}

func TestAnEventWithoutEndIsRefused(t *testing.T) {
	var m message
	lines := bufio.NewReaderSize(endless{}, 32<<10)
	if _, err := m.line(lines); !errors.Is(err, errEventTooLong) {
		t.Fatalf("error %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
