package client

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"rcd/wire"
)

// life answers with the views of one job, one after the other; the last stays.
func life(views ...wire.JobView) http.HandlerFunc {
	var mu sync.Mutex
	return func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path != "/v1/jobs/j-1" {
			answerError(w, 404, wire.CodeNotFound)
			return
		}
		answerJSON(w, 200, views[0])
		if len(views) > 1 {
			views = views[1:]
		}
	}
}

func view(state string, position int) wire.JobView {
	return wire.JobView{Job: wire.Job{ID: "j-1", State: state}, QueuePosition: position}
}

func TestWaitScheduledTellsEachPositionOnce(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", life(view("queued", 3), view("queued", 3), view("queued", 2), view("queued", 1),
			view("queued", 1), view("assigned", 0)))
		c, _ := n.client(t, Options{})
		var places []int
		job, err := c.WaitScheduled(t.Context(), "j-1", func(p int) { places = append(places, p) })
		if err != nil || job.State != "assigned" {
			t.Fatalf("job %v, error %v", job, err)
		}
		if !slices.Equal(places, []int{3, 2, 1}) {
			t.Fatalf("positions %v", places)
		}
	})
}

func TestWaitScheduledReturnsACancelledJobWithoutError(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", life(view("queued", 1), view("killed", 0)))
		c, _ := n.client(t, Options{})
		job, err := c.WaitScheduled(t.Context(), "j-1", nil)
		if err != nil || job.State != "killed" {
			t.Fatalf("job %v, error %v", job, err)
		}
	})
}

func TestWaitsOutlastTheRestartOfTheWholeCluster(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", life(view("queued", 1)))
		c, _ := n.client(t, Options{})
		go func() {
			time.Sleep(2 * time.Second)
			n.put("a:1", refuse)
			c.Close()
			time.Sleep(4 * time.Minute)
			n.serve(t, "b:1", "c2", life(view("running", 0), view("running", 0), view("succeeded", 0)))
		}()
		job, err := c.WaitScheduled(t.Context(), "j-1", nil)
		if err != nil || job.State != "running" {
			t.Fatalf("job %v, error %v", job, err)
		}
		if job, err = c.WaitTerminal(t.Context(), "j-1", 0); err != nil || job.State != "succeeded" {
			t.Fatalf("job %v, error %v", job, err)
		}
	})
}

func TestWaitTerminalNamesJobAndLastStateWhenItGivesUp(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", life(view("assigned", 0)))
		c, _ := n.client(t, Options{})
		begun := time.Now()
		_, err := c.WaitTerminal(t.Context(), "j-1", 90*time.Second)
		within(t, begun, 90*time.Second)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "j-1") || !strings.Contains(err.Error(), "assigned") {
			t.Fatalf("error %v", err)
		}
	})
}

func TestUnknownStateIsNoEnd(t *testing.T) {
	for state, want := range map[string]bool{
		"queued": false, "assigned": false, "running": false, "paused-by-a-later-version": false,
		"succeeded": true, "failed": true, "killed": true, "lost": true,
	} {
		if got := Terminal(&wire.Job{State: state}); got != want {
			t.Errorf("Terminal(%s) = %v", state, got)
		}
	}
}

// A job that is submitted later must not make a wait ambiguous.
func TestAWaitByPrefixStaysWithTheJobThatItFitted(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		asked := 0
		exact := life(view("queued", 1), view("running", 0), view("succeeded", 0))
		n.serve(t, "a:1", "c1", func(w http.ResponseWriter, r *http.Request) {
			switch {
			case r.URL.Path != "/v1/jobs/j-":
				exact(w, r)
			case asked > 0:
				answerError(w, 400, wire.CodeAmbiguous)
			default:
				asked++
				answerJSON(w, 200, view("queued", 1))
			}
		})
		c, _ := n.client(t, Options{})
		if job, err := c.WaitTerminal(t.Context(), "j-", 0); err != nil || job.State != "succeeded" {
			t.Fatalf("job %v, error %v", job, err)
		}
	})
}
