package controller_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"rcd/api"
	"rcd/controller"
	"rcd/jepsen/rig"
	"rcd/model"
	"rcd/raftnode"
	"rcd/wire"
)

// eventReader reads events from whichever node is up, as a script would: each
// time a stream ends it goes on from the last ID, on the next node.
type eventReader struct {
	c      *cluster
	lastID string
	asked  int
	// events are those read so far by ID; resets counts what was missing.
	events map[string]string
	order  []string
	resets int
	kinds  string // the query
}

// read reads until enough says so.
func (r *eventReader) read(ctx context.Context, enough func(wire.Event) bool) error {
	for ctx.Err() == nil {
		node := r.c.nodes[r.asked%len(r.c.nodes)]
		r.asked++
		req, err := http.NewRequestWithContext(ctx, "GET", "http://"+node.HTTP+"/v1/events"+r.kinds, nil)
		if err != nil {
			return err
		}
		req.Header.Set("Authorization", "Bearer "+rig.AdminToken)
		if r.lastID != "" {
			req.Header.Set("Last-Event-ID", r.lastID)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			continue // not up
		}
		if resp.StatusCode == http.StatusOK {
			done, err := r.take(bufio.NewScanner(resp.Body), enough)
			if done || err != nil {
				resp.Body.Close()
				return err
			}
		}
		resp.Body.Close()
	}
	return ctx.Err()
}

func (r *eventReader) take(lines *bufio.Scanner, enough func(wire.Event) bool) (bool, error) {
	id := ""
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch field {
		case "id":
			id = value
		case "data":
			var event wire.Event
			if err := json.Unmarshal([]byte(value), &event); err != nil {
				return false, err
			}
			if event.Kind == wire.EventResets {
				r.resets++
			}
			if _, twice := r.events[event.ID]; twice {
				return false, fmt.Errorf("event %s was told twice", event.ID)
			}
			r.events[event.ID] = value
			r.order = append(r.order, event.ID)
			if enough(event) {
				return true, nil
			}
		case "":
			r.lastID = id
		}
	}
	return false, nil // broken off: the last whole message counts
}

// TestEventsHaveNoGapAcrossDeadLeaders reads the events of twenty jobs through
// one node after the other while each leader in turn is stopped, and compares
// them with what every node tells afterwards.
func TestEventsHaveNoGapAcrossDeadLeaders(t *testing.T) {
	c := start(t)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := &eventReader{c: c, events: map[string]string{}}
	ended := make(chan error, 1)
	const jobs = 20
	go func() {
		ended <- r.read(ctx, func(e wire.Event) bool {
			return e.Event == "job.ended" && strings.Contains(string(e.Payload), `"`+model.JobID(jobs)+`"`)
		})
	}()
	for i := range jobs {
		job := c.submit("box:gpu0")
		c.waitRunning(job)
		if leader := rig.Leader(c.nodes); i%5 == 2 && leader != nil {
			if err := leader.Stop(); err != nil {
				t.Fatal(err)
			}
			c.host.Exit(job, 0)
			c.eventually("the end of the job", func() error {
				row, err := c.rc.Job(ctx, model.JobID(job))
				if err == nil && row.State != "succeeded" {
					err = fmt.Errorf("it is %s", row.State)
				}
				return err
			})
			if err := leader.Start(); err != nil {
				t.Fatal(err)
			}
		} else {
			c.host.Exit(job, 0)
		}
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if r.resets != 0 {
		t.Errorf("%d resets, though every node has the whole log", r.resets)
	}
	last := r.order[len(r.order)-1]
	for i := range c.nodes {
		again := &eventReader{c: c, events: map[string]string{}, lastID: "1-1", asked: i}
		if err := again.read(ctx, func(e wire.Event) bool { return e.ID == last }); err != nil {
			t.Fatal(err)
		}
		from := slices.Index(again.order, r.order[0])
		if from < 0 || !slices.Equal(again.order[from:], r.order) {
			t.Errorf("node %d tells\n%q\nthe reader got\n%q", i, again.order, r.order)
		}
		for id, text := range r.events {
			if again.events[id] != text {
				t.Errorf("event %s is\n%s\non node %d, and was\n%s", id, again.events[id], i, text)
			}
		}
	}
}

// TestAControllerThatGetsASnapshotSaysThatEventsAreMissing: nothing tells what
// led to a state that came whole.
func TestAControllerThatGetsASnapshotSaysThatEventsAreMissing(t *testing.T) {
	var table raftnode.StateMachine
	nodes, err := rig.Open(rig.Config{
		Controllers: 1, Dir: t.TempDir(), Network: &rig.Loopback{}, Logger: slog.New(slog.DiscardHandler),
		Change: func(_ string, _ *controller.Config, deps *controller.Deps) {
			deps.Replica = func(inner raftnode.StateMachine) raftnode.StateMachine {
				table = inner
				return inner
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, nodes: nodes}
	defer func() {
		if err := nodes[0].Stop(); err != nil {
			t.Error(err)
		}
	}()
	first := func() (got wire.Event) {
		r := &eventReader{c: c, events: map[string]string{}, lastID: "1-1", kinds: "?kinds=cluster"}
		if err := r.read(t.Context(), func(e wire.Event) bool { got = e; return true }); err != nil {
			t.Fatal(err)
		}
		return got
	}
	if e := first(); e.Kind != wire.EventCluster || e.Event != "cluster.epoch" {
		t.Errorf("before: %+v", e)
	}
	c.eventually("an idle log", func() error { // the machine is restored by its own goroutine otherwise
		view, _, err := nodes[0].Controller.Read(t.Context(), api.ReadOptions{})
		if err == nil && len(view.Members()) == 0 {
			err = errors.New("the controller has not said what it is")
		}
		return err
	})
	snapshot, err := table.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var raw bytes.Buffer
	if _, err := snapshot.WriteTo(&raw); err != nil {
		t.Fatal(err)
	}
	if err := table.Restore(&raw); err != nil {
		t.Fatal(err)
	}
	if e := first(); e.Kind != wire.EventResets {
		t.Errorf("after the snapshot: %+v", e)
	}
}
