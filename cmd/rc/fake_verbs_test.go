package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"rcd/wire"
)

// kill ends the job as its host would, at once or after a while.
func (j *fakeJob) kill(why string) {
	if n := step(j.steps, "slow"); n != nil && j.State == "running" {
		j.steps, j.views = []string{"slow", "end:killed:cancelled"}, number(n[0])
		return
	}
	end := j.SubmittedAt.Add(time.Minute)
	if j.Lease != "" {
		code := 143
		j.ExitCode, why = &code, "cancelled"
	}
	j.State, j.FinishedAt, j.KillReason, j.Origin = "killed", &end, why, originUser
	if step(j.steps, "away") != nil || step(j.steps, "unbegun") != nil {
		j.ExitCode = nil
	}
	if step(j.steps, "unbegun") != nil {
		j.OutputBytes = new(uint64)
	}
	close(j.killed)
}

// own returns the job of the path if it is submitter's and has not ended.
func (c *controller) own(w http.ResponseWriter, r *http.Request, submitter, code string) *fakeJob {
	job := c.find(w, r)
	switch {
	case job == nil:
		return nil
	case submitter != job.Submitter:
		refuse(w, 403, "not_job_owner", "the job belongs to "+job.Submitter+"; use --as if that is you")
		return nil
	case job.FinishedAt != nil:
		refuse(w, 409, code, "the job has ended: "+job.State)
		return nil
	}
	return job
}

func (c *controller) release(w http.ResponseWriter, r *http.Request) {
	var req wire.ReleaseRequest
	_ = json.NewDecoder(r.Body).Decode(&req)
	c.mu.Lock()
	defer c.mu.Unlock()
	if job := c.own(w, r, req.Submitter, "not_releasable"); job != nil {
		job.kill("released by " + req.Submitter)
		c.emptied(job)
		if !c.numb(job, r) {
			reply(w, 200, job.Job)
		}
	}
}

func (c *controller) extend(w http.ResponseWriter, r *http.Request) {
	var req wire.ExtendRequest
	_ = json.NewDecoder(r.Body).Decode(&req)
	c.mu.Lock()
	defer c.mu.Unlock()
	job := c.own(w, r, req.Submitter, "not_extendable")
	switch {
	case job == nil:
	case req.MaxRuntimeSeconds <= job.MaxRuntimeSeconds:
		refuse(w, 409, "not_extendable", fmt.Sprintf("the job may run %d s already and is never shortened; ask for more", job.MaxRuntimeSeconds))
	default:
		job.MaxRuntimeSeconds = req.MaxRuntimeSeconds
		if !c.numb(job, r) {
			reply(w, 200, job.Job)
		}
	}
}

// events answers the first reader with two events and a break, whoever comes
// back behind the second with a third, and anybody else with a reset.
func (c *controller) events(w http.ResponseWriter, r *http.Request) {
	send := func(text string) {
		_, _ = w.Write([]byte(text))
		_ = http.NewResponseController(w).Flush()
	}
	w.Header().Set("Content-Type", "text/event-stream")
	switch r.Header.Get("Last-Event-ID") {
	case "":
		send(": alive\n\nid: 1-7-0\ndata: " + eventPlaced + "\n\nid: 1-7-1\ndata: " + eventDevice + "\n\n")
		return
	case "1-7-1":
		send("id: 1-9-0\ndata: " + eventEnded + "\n\n")
		c.count(&c.hanging)
	default:
		send("id: 1-9-0\nevent: reset\ndata: " + eventReset + "\n\n")
	}
	<-r.Context().Done()
}

// fixture answers the routes that only show something.
func (c *controller) fixture(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if r.URL.Query().Has("max_runtime_seconds") {
		path += "?long"
	}
	body, ok := fixtures[path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	c.count(&c.shown)
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write([]byte(body))
}

// mute leaves a request without an answer until its client has gone. c.mu is
// held before and after.
func (c *controller) mute(r *http.Request) {
	c.muted++
	c.mu.Unlock()
	<-r.Context().Done()
	c.mu.Lock()
}

// numb is mute for the first change of a job with that step.
func (c *controller) numb(job *fakeJob, r *http.Request) bool {
	if step(job.steps, "numb") == nil || job.muted {
		return false
	}
	job.muted = true
	c.mute(r)
	return true
}
