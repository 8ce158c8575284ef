package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rcd/fsm/command"
	"rcd/wire"
)

// listener reads a stream of events as a browser would.
type listener struct {
	t      *testing.T
	resp   *http.Response
	lines  *bufio.Scanner
	lastID string
	cancel context.CancelFunc
}

func (n *node) listen(query string, headers ...string) *listener {
	n.cluster.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	resp, err := n.try(ctx, "GET", "/v1/events"+query, clientToken, "", headers...)
	if err != nil {
		n.cluster.t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("Cache-Control") != "no-store" {
		n.cluster.t.Fatalf("%d %v", resp.StatusCode, resp.Header)
	}
	l := &listener{t: n.cluster.t, resp: resp, lines: bufio.NewScanner(resp.Body), cancel: cancel}
	return l
}

func (l *listener) close() {
	l.cancel()
	l.resp.Body.Close()
}

// block returns the next block of lines, false at the end of the stream.
func (l *listener) block() (event wire.Event, named string, ok bool) {
	l.t.Helper()
	some := false
	for l.lines.Scan() {
		line := l.lines.Text()
		field, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && some:
			return event, named, true
		case field == "id":
			l.lastID = value
		case field == "event":
			named = value
		case field == "data":
			if err := json.Unmarshal([]byte(value), &event); err != nil {
				l.t.Fatalf("%v in %q", err, value)
			}
		}
		some = true
	}
	return event, named, false
}

// next returns the next event.
func (l *listener) next() wire.Event {
	l.t.Helper()
	for range 20 { // not for ever, where only comments come
		event, named, ok := l.block()
		if !ok {
			l.t.Fatal("the stream has ended")
		}
		if event.Kind == "" {
			continue // alive
		}
		if event.ID != l.lastID || (named == "reset") != (event.Kind == wire.EventResets) {
			l.t.Fatalf("event %+v in a message of ID %q and type %q", event, l.lastID, named)
		}
		return event
	}
	l.t.Fatal("no event comes")
	return wire.Event{}
}

// all returns the events up to the one with this ID.
func (l *listener) all(until string) []string {
	l.t.Helper()
	var got []string
	for {
		event := l.next()
		got = append(got, event.ID+" "+event.Event+" "+string(event.Payload))
		if event.ID == until {
			return got
		}
	}
}

func TestEventsSayWhatHappened(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		l := c.nodes["c2"].listen("")
		defer l.close()
		if l.block(); l.lastID != "1-"+c.at() {
			t.Fatalf("the stream begins at %q, want the present", l.lastID)
		}
		c.nodes["c1"].submit(`{"device_id":"box:gpu0","command":["true"],"submitter":"ann@box"}`)
		at := c.machine.Index()
		queued, placed := l.next(), l.next()
		device := placed
		if placed.Kind == wire.EventDevices {
			placed = l.next()
		} else {
			device = l.next()
		}
		if string(queued.Payload) != `{"job_id":"j-1","state":"queued"}` || queued.Kind != "jobs" || queued.Event != "job.queued" || !strings.HasPrefix(queued.ID, fmt.Sprintf("1-%d-", at)) {
			t.Errorf("queued: %+v %s", queued, queued.Payload)
		}
		if string(placed.Payload) != `{"job_id":"j-1","state":"assigned"}` || placed.DeviceID != "box:gpu0" || !placed.At.Equal(c.now) {
			t.Errorf("placed: %+v %s", placed, placed.Payload)
		}
		views := decode[[]wire.DeviceView](t, string(device.Payload))
		if device.Kind != "devices" || len(views) != 1 || views[0].Device.State != "busy" || views[0].Holder != "ann@box" || views[0].JobID != "j-1" {
			t.Errorf("device: %+v %s", device, device.Payload)
		}
		c.start(1)
		if e := l.next(); e.Event != "job.started" || string(e.Payload) != `{"job_id":"j-1","state":"running"}` {
			t.Errorf("%+v %s", e, e.Payload)
		}
		// The next in the queue takes the device in the entry that frees it: the
		// device is told once, as it is after that.
		c.nodes["c1"].submit(`{"device_id":"box:gpu0","command":["false"],"submitter":"bob@box"}`)
		l.next()
		c.finish(1, command.EndKilled, 143, "cancelled")
		var events []string
		for len(events) < 3 {
			e := l.next()
			events = append(events, e.Event)
			switch e.Event {
			case "job.ended":
				if string(e.Payload) != `{"job_id":"j-1","state":"killed","reason":"cancelled"}` {
					t.Errorf("%s", e.Payload)
				}
			case "device.state":
				if views := decode[[]wire.DeviceView](t, string(e.Payload)); views[0].Holder != "bob@box" || views[0].Device.State != "busy" {
					t.Errorf("%s", e.Payload)
				}
			}
		}
		if slices.Sort(events); !slices.Equal(events, []string{"device.state", "job.ended", "job.placed"}) {
			t.Errorf("%q", events)
		}
		c.lead("c2") // a kind that was not asked for
		c.start(2)
		if e := l.next(); e.Event != "job.started" {
			t.Errorf("%+v", e)
		}
		if resp, raw := c.nodes["c1"].do("DELETE", "/v1/devices/box:gpu1", adminToken, ""); resp.StatusCode != 200 {
			t.Fatal(raw)
		}
		if e := l.next(); e.Event != "device.retired" || e.DeviceID != "box:gpu1" || e.Kind != "devices" || e.Payload != nil {
			t.Errorf("%+v", e)
		}
	})
}

// TestEveryEventOfTheStateMachineHasAName walks the kinds: a new one must be
// given a name, or none on purpose.
func TestEveryEventOfTheStateMachineHasAName(t *testing.T) {
	for kind := command.EventEpoch; kind <= command.EventHoldHeard; kind++ {
		if _, known := eventKinds[kind]; !known {
			t.Errorf("kind %d", kind)
		}
	}
	if len(eventKinds) != int(command.EventHoldHeard) {
		t.Errorf("%d kinds named, the state machine has %d", len(eventKinds), command.EventHoldHeard)
	}
}

// TestAReaderThatReturnsGetsEverythingSinceOnAnyNode is the promise itself,
// from every event and on every node.
func TestAReaderThatReturnsGetsEverythingSinceOnAnyNode(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		first := c.nodes["c1"].listen("?kinds=jobs,devices,cluster")
		defer first.close()
		first.block()
		begin := first.lastID
		for i := range 5 {
			c.nodes["c2"].submit(`{"device_id":"box:gpu0","command":["true"],"submitter":"ann@box"}`)
			c.start(uint64(i + 1))
			c.lead([]string{"c2", "c3", "c1"}[i%3])
			c.finish(uint64(i+1), command.EndExited, 0, "")
		}
		var last string
		for last == "" {
			e := first.next()
			if e.Event == "job.ended" && strings.Contains(string(e.Payload), "j-5") {
				last = e.ID
			}
		}
		want := func() []string {
			l := c.nodes["c3"].listen("?kinds=jobs,devices,cluster&last_event_id=" + begin)
			defer l.close()
			return l.all(last)
		}()
		if len(want) < 25 {
			t.Fatalf("only %d events", len(want))
		}
		for i := range want {
			id, _, _ := strings.Cut(want[i], " ")
			if id == last {
				break
			}
			for name, n := range c.nodes {
				l := n.listen("?kinds=jobs,devices,cluster", "Last-Event-ID", id)
				if got := l.all(last); !slices.Equal(got, want[i+1:]) {
					t.Fatalf("%s after %s:\n%q\nwant\n%q", name, id, got, want[i+1:])
				}
				l.close()
			}
		}
	})
}

// TestWhoReadsTheStateGoesOnFromItsIndex: no event between a list and a stream
// is missed, and none is told twice.
func TestWhoReadsTheStateGoesOnFromItsIndex(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		c.nodes["c1"].submit(submitTrue)
		resp, _ := c.nodes["c2"].do("GET", "/v1/state", clientToken, "")
		c.start(1)
		l := c.nodes["c3"].listen("?last_event_id=" + resp.Header.Get(wire.HeaderIndex))
		defer l.close()
		if e := l.next(); e.Event != "job.started" {
			t.Fatalf("%+v", e)
		}
	})
}

func TestAReaderIsToldOfEventsThatAreMissing(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		l := c.nodes["c1"].listen("")
		l.block()
		from := l.lastID
		l.close()
		c.nodes["c1"].submit(submitTrue)
		for query, asked := range map[string]string{
			"another generation": "7-3-0",
			"the future":         "1-999999-0",
		} {
			l := c.nodes["c1"].listen("?last_event_id=" + asked)
			e := l.next()
			if reset := decode[wire.EventReset](t, string(e.Payload)); e.Kind != "reset" || e.ID != "1-"+c.at() || reset.From != asked || reset.Reason == "" {
				t.Errorf("%s: %+v %s", query, e, e.Payload)
			}
			l.close()
		}
		// A node that was restored from a snapshot has nothing from before it;
		// the others have.
		c.nodes["c2"].events.Restored(c.machine.View())
		l = c.nodes["c2"].listen("?last_event_id=" + from)
		if e := l.next(); e.Kind != "reset" || decode[wire.EventReset](t, string(e.Payload)).From != from {
			t.Fatalf("%+v", e)
		}
		c.start(1)
		if e := l.next(); e.Event != "job.started" {
			t.Errorf("after the reset: %+v", e)
		}
		// One that is restored while somebody listens says so too.
		c.nodes["c2"].events.Restored(c.machine.View())
		l.close()
		l = c.nodes["c3"].listen("?last_event_id=" + from)
		defer l.close()
		if e := l.next(); e.Event != "job.queued" {
			t.Errorf("%+v", e)
		}
		c.nodes["c3"].events.Restored(c.machine.View())
		c.must(&command.JobPrune{Limit: 1})
		for e := l.next(); ; e = l.next() {
			if e.Kind == "reset" || e.Event == "job.started" {
				break // it had all that there was
			}
		}
	})
}

// TestTheEventLogIsBounded overruns it, by number and by size.
func TestTheEventLogIsBounded(t *testing.T) {
	fill := func(bytes, n int) *EventLog {
		log := NewEventLog()
		for i := range n {
			r := &record{id: eventID{uint64(i + 1), 0}, bytes: bytes}
			log.mu.Lock()
			log.last = r.id.index
			log.records = append(log.records, r)
			log.bytes += r.bytes
			log.shrink()
			log.mu.Unlock()
		}
		return log
	}
	for name, log := range map[string]*EventLog{
		"by number": fill(recordBytes, 3*maxEvents),
		"by bytes":  fill(1<<20, 100),
	} {
		if n := len(log.records); n > maxEvents || log.bytes > maxEventBytes || n == 0 {
			t.Errorf("%s: %d events of %d bytes", name, n, log.bytes)
		}
		oldest := log.records[0].id
		if p := log.after(after(oldest.index-1), 1); !p.whole || p.records[0].id != oldest {
			t.Errorf("%s: the oldest event is not had from the entry before it: %+v", name, p)
		}
		if p := log.after(after(oldest.index-2), 1); p.whole || len(p.records) != 0 {
			t.Errorf("%s: an event that was dropped is not missed: %+v", name, p)
		}
		if p := log.after(after(log.last), 1); !p.whole || len(p.records) != 0 {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// A quiet stream says that it lives, and its place moves on all the same.
func TestAQuietStreamLivesAndItsPlaceMovesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		l := c.nodes["c2"].listen("?kinds=cluster")
		defer l.close()
		l.block()
		c.nodes["c1"].submit(submitTrue)
		began := time.Now()
		event, _, ok := l.block()
		if !ok || event.Kind != "" || l.lastID != "1-"+c.at() || time.Since(began) != eventsAlive {
			t.Errorf("%+v %v, at %q after %v", event, ok, l.lastID, time.Since(began))
		}
	})
}

// A node that has lost the cluster hears of nothing; it must not keep readers.
func TestANodeThatHasLostTheClusterEndsItsStreams(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		l := c.nodes["c2"].listen("")
		defer l.close()
		l.block()
		c.lead("")
		began := time.Now()
		for range 5 {
			if _, _, ok := l.block(); !ok {
				break
			}
		}
		if l.lines.Err() != nil || time.Since(began) > eventsAlive+requestDeadline+time.Second {
			t.Errorf("%v after %v", l.lines.Err(), time.Since(began))
		}
		resp, raw := c.nodes["c2"].do("GET", "/v1/events", clientToken, "")
		wantError(t, resp, raw, 503, "no_leader")
	})
}

func TestEventsRefusals(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		for _, query := range []string{"?kinds=jobs,cats", "?last_event_id=x", "?last_event_id=1-2-3-4", "?last_event_id=1--2", "?last_event_id=" + strings.Repeat("1-", 40) + "1"} {
			resp, raw := c.nodes["c2"].do("GET", "/v1/events"+query, clientToken, "")
			wantError(t, resp, raw, 400, "bad_request")
		}
		resp, raw := c.nodes["c2"].do("GET", "/v1/events", clientToken, "", "Last-Event-ID", "+1")
		wantError(t, resp, raw, 400, "bad_request")
		resp, raw = c.nodes["c2"].do("GET", "/v1/events", workerToken, "")
		wantError(t, resp, raw, 403, "forbidden")
	})
}

func TestATokenInAURLIsTakenForEventsOnlyAndOnlyWhenAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "c1")
		c.register()
		resp, raw := c.nodes["c1"].do("GET", "/v1/events?token="+clientToken, "", "")
		wantError(t, resp, raw, 401, "unauthorized")
		if !strings.Contains(raw, "--events-token-in-url") || strings.Contains(raw, clientToken) {
			t.Error(raw)
		}
		l := c.nodes["c1"].listen("?token=nonsense") // the header is what counts
		l.close()

		c.nodes["c1"].tokenInURL.Store(true)
		resp, raw = c.nodes["c1"].do("GET", "/v1/devices?token="+clientToken, "", "")
		wantError(t, resp, raw, 401, "unauthorized")
		resp, raw = c.nodes["c1"].do("GET", "/v1/events?token=nobodys", "", "")
		wantError(t, resp, raw, 401, "unauthorized")
		resp, raw = c.nodes["c1"].do("GET", "/v1/events?token="+workerToken, "", "")
		wantError(t, resp, raw, 403, "forbidden")
		resp, err := c.nodes["c1"].try(context.Background(), "GET", "/v1/events?token="+clientToken, "", "")
		if err != nil || resp.StatusCode != 200 {
			t.Fatal(err, resp)
		}
		resp.Body.Close()
	})
}

// TestReadersOfEventsShareTheBoundOfReaders fills every slot.
func TestReadersOfEventsShareTheBoundOfReaders(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{}, maxReaders)
		for range maxReaders {
			go func() {
				defer func() { ended <- struct{}{} }()
				if resp, err := c.nodes["c2"].try(ctx, "GET", "/v1/events", clientToken, ""); err == nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
			}()
		}
		synctest.Wait()
		resp, raw := c.nodes["c2"].do("GET", "/v1/events", clientToken, "")
		wantError(t, resp, raw, 503, "overloaded")
		cancel()
		for range maxReaders {
			<-ended
		}
	})
}
