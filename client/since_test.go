package client

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rcd/wire"
)

// patient is a controller that keeps the answer about a job back until the
// job's state is another one, or the wait is over.
type patient struct {
	mu    sync.Mutex
	index uint64
	state string
	news  chan struct{}
	asked []string
}

func newPatient() *patient { return &patient{index: 7, state: "queued", news: make(chan struct{})} }

func (p *patient) become(state string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state, p.index = state, p.index+1
	close(p.news)
	p.news = make(chan struct{})
}

func (p *patient) requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.asked)
}

func (p *patient) serve(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked = append(p.asked, r.URL.RequestURI())
	news, index := p.news, p.index
	p.mu.Unlock()
	wait, _ := time.ParseDuration(r.URL.Query().Get("wait"))
	if r.URL.Query().Get("index") == fmt.Sprint(index) {
		select {
		case <-news:
		case <-time.After(wait + wait/16):
		case <-r.Context().Done():
			return
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	w.Header().Set(wire.HeaderIndex, fmt.Sprint(p.index))
	answerJSON(w, 200, view(p.state, 0))
}

// TestAWaitHearsOfAChangeAtOnceAndAsksSeldom: no second node is asked, and no
// notice given, because the first keeps its answer back.
func TestAWaitHearsOfAChangeAtOnceAndAsksSeldom(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		first, second := newPatient(), newPatient()
		n.serve(t, "a:1", "c1", first.serve)
		n.serve(t, "b:1", "c2", second.serve)
		c, seen := n.client(t, Options{})
		began := time.Now()
		time.AfterFunc(time.Minute, func() { first.become("running") })
		time.AfterFunc(time.Minute+10*time.Millisecond, func() { first.become("succeeded") })
		job, err := c.WaitTerminal(t.Context(), "j-1", 0)
		if err != nil || job.State != "succeeded" || time.Since(began) != time.Minute+10*time.Millisecond {
			t.Fatalf("%v, %v after %v", job, err, time.Since(began))
		}
		if asked := first.requests(); len(asked) > 15 || asked[0] != "/v1/jobs/j-1" || asked[1] != "/v1/jobs/j-1?index=7&wait=5s" {
			t.Errorf("%d requests: %q", len(asked), asked[:2])
		}
		if asked := second.requests(); len(asked) != 0 || len(seen.all()) != 0 {
			t.Errorf("the second node was asked %q, notices %v", asked, seen.all())
		}
	})
}

// TestALongWaitIsNoOutage: two minutes without an answer are what was asked
// for.
func TestALongWaitIsNoOutage(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		node := newPatient()
		n.serve(t, "a:1", "c1", node.serve)
		c, seen := n.client(t, Options{})
		view, _, err := c.JobViewSince(t.Context(), "j-1", Since{Index: 7, Wait: 2 * time.Minute})
		if err != nil || view.Job.State != "queued" || len(node.requests()) != 1 || len(seen.all()) != 0 {
			t.Errorf("%v, %v, asked %q, notices %v", view, err, node.requests(), seen.all())
		}
	})
}

// TestAWaitGoesOnAtItsIndexOnTheNextNode: a node that dies, or is stopped, in
// the middle of a wait costs little.
func TestAWaitGoesOnAtItsIndexOnTheNextNode(t *testing.T) {
	for name, after := range map[string]struct {
		dialFunc
		longest time.Duration
	}{
		"dead":    {refuse, 100 * time.Millisecond},
		"stopped": {mute, lookWait + lookWait/16 + readHedge + 100*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				gone := make(chan struct{})
				first, second := newPatient(), newPatient()
				n.serve(t, "a:1", "c1", func(w http.ResponseWriter, r *http.Request) {
					if r.URL.Query().Get("index") == "" {
						first.serve(w, r)
						return
					}
					<-gone
					if name == "stopped" {
						<-r.Context().Done()
					}
					panic(http.ErrAbortHandler)
				})
				n.serve(t, "b:1", "c2", second.serve)
				c, _ := n.client(t, Options{})
				var died time.Time
				time.AfterFunc(time.Second, func() {
					died = time.Now()
					n.put("a:1", after.dialFunc)
					second.become("succeeded")
					close(gone)
				})
				job, err := c.WaitTerminal(t.Context(), "j-1", 0)
				if err != nil || job.State != "succeeded" || time.Since(died) > after.longest {
					t.Fatalf("%v, %v after %v", job, err, time.Since(died))
				}
				if asked := second.requests(); asked[0] != "/v1/jobs/j-1?index=7&wait=5s" {
					t.Errorf("the next node was asked %q", asked)
				}
			})
		})
	}
}

// TestAWaitPollsAControllerThatDoesNotWait: one that gives no index, and one
// that gives it and takes no notice of it.
func TestAWaitPollsAControllerThatDoesNotWait(t *testing.T) {
	for _, index := range []string{"", "7"} {
		bubble(t, func(t *testing.T, n *network) {
			asked := 0
			n.serve(t, "a:1", "c1", func(w http.ResponseWriter, r *http.Request) {
				asked++
				w.Header().Set(wire.HeaderIndex, index)
				state := "running"
				if asked > 20 {
					state = "failed"
				}
				answerJSON(w, 200, view(state, 0))
			})
			c, _ := n.client(t, Options{})
			began := time.Now()
			if job, err := c.WaitTerminal(t.Context(), "j-1", 0); err != nil || job.State != "failed" {
				t.Fatal(job, err)
			}
			if took := time.Since(began); took < 9*time.Second || took > 11*time.Second {
				t.Errorf("21 looks took %v", took)
			}
		})
	}
}

func TestReadsThatWaitSayWhatTheyHave(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		var asked []string
		n.serve(t, "a:1", "c1", func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.RequestURI())
			w.Header().Set(wire.HeaderIndex, "12")
			switch r.URL.Path {
			case "/v1/devices":
				answerJSON(w, 200, []wire.DeviceView{})
			case "/v1/jobs":
				answerJSON(w, 200, wire.JobList{NextCursor: "n"})
			default:
				answerJSON(w, 200, struct{}{})
			}
		})
		c, _ := n.client(t, Options{})
		since := Since{Index: 11, Wait: 90 * time.Second}
		var got []uint64
		note := func(index uint64, err error) {
			if err != nil {
				t.Error(err)
			}
			got = append(got, index)
		}
		_, index, err := c.DevicesSince(t.Context(), since)
		note(index, err)
		_, index, err = c.StateSince(t.Context(), since)
		note(index, err)
		_, index, err = c.DescribeSince(t.Context(), "box:gpu0", Since{Index: 11})
		note(index, err)
		_, index, err = c.JobViewSince(t.Context(), "j-1", Since{Wait: time.Second})
		note(index, err)
		list, index, err := c.JobsSince(t.Context(), JobsOptions{Limit: 5, State: "queued", Cursor: "c"}, since)
		note(index, err)
		want := []string{
			"/v1/devices?index=11&wait=1m30s", "/v1/state?index=11&wait=1m30s", "/v1/devices/box:gpu0/describe?index=11",
			"/v1/jobs/j-1", "/v1/jobs?cursor=c&index=11&limit=5&state=queued&wait=1m30s",
		}
		if !slices.Equal(asked, want) || !slices.Equal(got, []uint64{12, 12, 12, 12, 12}) || list.NextCursor != "n" {
			t.Errorf("asked %q\ngot %v", asked, got)
		}
	})
}

func TestEachJobGoesThroughAllPages(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			if q.Get("submitter") != "ann" || q.Get("limit") != "2" {
				answerError(w, 400, wire.CodeBadRequest)
				return
			}
			pages := map[string]wire.JobList{
				"":   {Jobs: []wire.Job{{ID: "j-5"}, {ID: "j-4"}}, NextCursor: "c4"},
				"c4": {Jobs: []wire.Job{{ID: "j-3"}, {ID: "j-2"}}, NextCursor: "c2"},
				"c2": {Jobs: []wire.Job{{ID: "j-1"}}},
			}
			answerJSON(w, 200, pages[q.Get("cursor")])
		})
		c, _ := n.client(t, Options{})
		var got []string
		all := func(job *wire.Job) bool { got = append(got, job.ID); return true }
		if err := c.EachJob(t.Context(), JobsOptions{Limit: 2, Submitter: "ann"}, all); err != nil || strings.Join(got, " ") != "j-5 j-4 j-3 j-2 j-1" {
			t.Errorf("%q %v", got, err)
		}
		got = nil
		some := func(job *wire.Job) bool { got = append(got, job.ID); return len(got) < 3 }
		if err := c.EachJob(t.Context(), JobsOptions{Limit: 2, Submitter: "ann"}, some); err != nil || len(got) != 3 {
			t.Errorf("%q %v", got, err)
		}
	})
}

func TestSubmitAllIsOneRequestUnderOneID(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		var ids []string
		n.serve(t, "a:1", "c1", func(w http.ResponseWriter, r *http.Request) {
			ids = append(ids, r.Header.Get(wire.HeaderRequestID))
			var in wire.BatchRequest
			if err := json.NewDecoder(r.Body).Decode(&in); err != nil || r.URL.Path != "/v1/jobs:batch" || len(in.Jobs) != 2 || in.Jobs[1].DeviceID != "box:gpu1" {
				t.Errorf("%s %+v %v", r.URL, in, err)
			}
			if len(ids) == 1 {
				panic(http.ErrAbortHandler)
			}
			answerJSON(w, 201, wire.Batch{Jobs: []wire.Job{{ID: "j-1"}, {ID: "j-2"}}})
		})
		c, _ := n.client(t, Options{})
		jobs := []SubmitOptions{{DeviceID: "box:gpu0", Command: []string{"true"}}, {DeviceID: "box:gpu1", Command: []string{"true"}}}
		got, err := c.SubmitAll(t.Context(), jobs, "")
		if err != nil || len(got) != 2 || got[1].ID != "j-2" || len(ids) != 2 || ids[0] == "" || ids[0] != ids[1] {
			t.Errorf("%+v %v %q", got, err, ids)
		}
		jobs[1].RequestID = "mine"
		if _, err := c.SubmitAll(t.Context(), jobs, ""); err == nil || len(ids) != 2 {
			t.Errorf("a request ID of one job of an array: %v", err)
		}
	})
}
