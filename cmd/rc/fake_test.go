package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"time"

	"rcd/relay"
	"rcd/wire"
)

// controller is a fake of the API. What becomes of a job stands in its command,
// of a hold in its reason, one step a word:
//
//	out:TEXT err:TEXT   prints; _ is a space, a line end follows
//	gap:N               N bytes are missing here
//	cut                 the first link that gets here breaks
//	queue:N             seen queued N times before it is placed; queue:0 stays queued
//	held:ID             says that it waits for this job, ten minutes for each place
//	busy                no_wait is refused
//	mute                the first submit has its effect and gets no answer
//	twin                at the cut another job comes up, with an ID that begins alike
//	flood:N             prints N lines of 16 bytes
//	hang                runs until it is killed
//	assigned            its host has not started it
//	behind              its output has ended, and its end is never reported
//	stalled             the first look after its output gets no answer, and it has ended then
//	numb                the first change of it has its effect and gets no answer
//	old                 knows no sessions of holds
//	cat                 prints its stdin, of which only a pipe has any
//	id:ID               has this ID
//	after:N             seen running N times before it ends
//	away                its host is out of reach when it is killed
//	unbegun             its process has not begun when it is killed
//	slow:N              killed, it is seen N times before it ends
//	exit:N              ends with this code
//	end:STATE[:REASON]  ends so, without a code
//	never:STATE:REASON  ends so before it is placed
//	origin:WORD         is to blame for its end
type controller struct {
	*httptest.Server
	mu   sync.Mutex
	jobs []*fakeJob
	// requests are the jobs by the request IDs of their submits.
	requests map[string]*fakeJob
	// hanging counts the streams that got to a hang, looks those at queued jobs,
	// views those at running ones, muted the requests left without an answer,
	// shown the answers of routes that only show something, beats the heartbeats
	// of holds.
	hanging, looks, views, muted, shown, beats int
}

type fakeJob struct {
	wire.Job
	steps  []string
	looks  int // left before it is placed; negative: for ever
	views  int // left before it ends; negative: for ever
	killed chan struct{}
	cut    bool
	over   bool // its output has ended
	muted  bool // one request about it got no answer
}

func newController() *controller {
	c := &controller{requests: map[string]*fakeJob{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/jobs", c.submit)
	mux.HandleFunc("GET /v1/jobs", c.list)
	mux.HandleFunc("GET /v1/jobs/{id}", c.view)
	mux.HandleFunc("POST /v1/jobs/{id}/kill", c.kill)
	mux.HandleFunc("POST /v1/jobs/{id}/release", c.release)
	mux.HandleFunc("POST /v1/jobs/{id}/extend", c.extend)
	mux.HandleFunc("POST /v1/jobs/{id}/heartbeat", c.heartbeat)
	mux.HandleFunc("GET /v1/jobs/{id}/stream", c.stream)
	mux.HandleFunc("GET /v1/jobs/{id}/attach", c.attach)
	mux.HandleFunc("GET /v1/events", c.events)
	mux.HandleFunc("GET /v1/", c.fixture)
	mux.HandleFunc("DELETE /v1/devices/{id}", retire)
	mux.HandleFunc("DELETE /v1/hosts/{id}", retire)
	mux.HandleFunc("PATCH /v1/settings", setSettings)
	mux.HandleFunc("POST /v1/devices/{id}/clear", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") != "box:gpu2" {
			refuse(w, 409, "device_not_cleared", "box:gpu0 is not in quarantine; look with: rc devices")
		}
	})
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(wire.HeaderInstance, "00000000-0000-4000-8000-000000000000")
		w.Header().Set(wire.HeaderNode, "c1")
		if r.Header.Get("Authorization") != "Bearer secret" {
			refuse(w, 401, wire.CodeUnauthorized, "no such token; set RC_TOKEN to one that the controllers know")
			return
		}
		mux.ServeHTTP(w, r)
	}))
	return c
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	reply(w, status, wire.Error{Code: code, Message: message})
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (c *controller) submit(w http.ResponseWriter, r *http.Request) {
	var req wire.SubmitRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		refuse(w, 400, wire.CodeBadRequest, err.Error())
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case r.Header.Get(wire.HeaderRequestID) == "":
		refuse(w, 400, wire.CodeBadRequest, "a submit of rc carries a request ID")
		return
	case req.DeviceID == "no:such":
		refuse(w, 400, "unknown_device", "there is no device no:such; look with: rc devices")
		return
	case req.NoWait && (step(req.Command, "busy") != nil || req.Reason == "busy"):
		refuse(w, 409, wire.CodeNoDevice, "busy")
		return
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	job := &fakeJob{killed: make(chan struct{}), steps: req.Command, views: -1, Job: wire.Job{
		ID: fmt.Sprintf("j-%d", len(c.jobs)+1), Kind: "job", Command: req.Command, Cwd: req.Cwd, Env: req.Env, Reason: req.Reason,
		Submitter: req.Submitter, Priority: req.Priority, Selector: req.Selector, DeviceID: req.DeviceID,
		MaxRuntimeSeconds: req.MaxRuntimeSeconds, SubmittedAt: now, QueuedAt: &now, State: "queued",
		Stdio: req.Stdio, SessionSeconds: req.SessionSeconds,
	}}
	if req.Hold != "" && !c.enter(w, &req, job) {
		return
	}
	if earlier := c.requests[r.Header.Get(wire.HeaderRequestID)]; earlier != nil {
		reply(w, 201, earlier.Job)
		return
	}
	c.requests[r.Header.Get(wire.HeaderRequestID)] = job
	if req.Kind == kindHold {
		job.Kind, job.Command, job.steps = kindHold, []string{"hold"}, strings.Fields(req.Reason)
	}
	if step(job.steps, "old") != nil {
		job.SessionSeconds = 0
	}
	if id := step(job.steps, "id"); id != nil {
		job.ID = id[0]
	}
	if n := step(job.steps, "after"); n != nil {
		job.views = number(n[0])
	}
	if n := step(job.steps, "queue"); n != nil {
		job.looks = number(n[0])
		if job.looks == 0 {
			job.looks = -1
		}
	} else {
		job.place()
	}
	c.jobs = append(c.jobs, job)
	if step(job.steps, "mute") != nil {
		c.mute(r)
		return
	}
	reply(w, 201, job.Job)
}

// place gives the job its device, or ends it before it has one.
func (j *fakeJob) place() {
	start := j.SubmittedAt.Add(time.Second)
	if end := step(j.steps, "never"); end != nil {
		j.State, j.KillReason, j.FinishedAt = end[0], end[1], &start
		return
	}
	if j.DeviceID == "" {
		j.DeviceID = "box:gpu7"
	}
	j.State, j.StartedAt, j.Lease = "running", &start, strings.Replace(j.ID, "j-", "l-", 1)
	if step(j.steps, "assigned") != nil {
		j.State, j.StartedAt = "assigned", nil
	}
}

// finish ends the job the way its command says.
func (j *fakeJob) finish() {
	end := j.StartedAt.Add(90 * time.Second)
	j.FinishedAt = &end
	if origin := step(j.steps, "origin"); origin != nil {
		j.Origin = origin[0]
	}
	switch code, other := step(j.steps, "exit"), step(j.steps, "end"); {
	case other != nil:
		j.State = other[0]
		if len(other) > 1 {
			j.KillReason = other[1]
		}
	case code != nil && code[0] != "0":
		n := number(code[0])
		j.State, j.ExitCode = "failed", &n
	default:
		zero := 0
		j.State, j.ExitCode = "succeeded", &zero
	}
}

// step returns the arguments of a step of a command, nil if it is not there.
func step(command []string, name string) []string {
	for _, word := range command {
		if parts := strings.Split(word, ":"); parts[0] == name {
			return append(parts[1:], "")[:max(len(parts)-1, 1)]
		}
	}
	return nil
}

func number(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// find takes a prefix for reads, as the API does.
func (c *controller) find(w http.ResponseWriter, r *http.Request) *fakeJob {
	var fit []*fakeJob
	for _, job := range c.jobs {
		if job.ID == r.PathValue("id") {
			return job
		}
		if r.Method == http.MethodGet && strings.HasPrefix(job.ID, r.PathValue("id")) {
			fit = append(fit, job)
		}
	}
	if len(fit) == 1 {
		return fit[0]
	}
	if len(fit) > 1 {
		refuse(w, 400, wire.CodeAmbiguous, "it fits more than one job; write more of the ID")
		return nil
	}
	refuse(w, 404, wire.CodeNotFound, "there is no job "+r.PathValue("id")+"; look with: rc jobs")
	return nil
}

func (c *controller) view(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	job := c.find(w, r)
	if job == nil {
		return
	}
	if job.over && step(job.steps, "stalled") != nil && !job.muted {
		job.muted = true
		job.finish()
		c.mute(r)
		return
	}
	view := wire.JobView{}
	switch job.State {
	case "running":
		c.views++
		if job.views == 0 {
			job.finish()
			close(job.killed)
		}
		job.views--
	case "queued":
		c.looks++
		if job.looks == 0 {
			job.place()
		} else {
			view.QueuePosition = max(job.looks, 1)
			view.Waiting = heldUp(job, view.QueuePosition)
			job.looks--
		}
	}
	view.Job = job.Job
	reply(w, 200, view)
}

// heldUp says why a job of a command with held:ID waits at a place.
func heldUp(job *fakeJob, place int) *wire.Waiting {
	holder := step(job.steps, "held")
	if holder == nil {
		return nil
	}
	now := job.SubmittedAt
	latest := now.Add(time.Duration(place) * 10 * time.Minute)
	w := &wire.Waiting{
		Reasons:       []wire.WaitReason{{Code: wire.WaitDeviceBusy, Message: "box:gpu7 is held by bob with job " + holder[0] + "."}},
		ExpectedStart: wire.ExpectedStart{Earliest: &now, Latest: &latest},
	}
	if place > 1 {
		w.Reasons = append(w.Reasons, wire.WaitReason{Code: wire.WaitBehind, JobsAhead: place - 1, Message: "They are ahead."})
	}
	return w
}

func retire(w http.ResponseWriter, r *http.Request) {
	switch r.PathValue("id") {
	case "box:gpu0":
		refuse(w, 409, "device_busy", "box:gpu0 is held under lease l-7; end its job first.")
	case "box":
		refuse(w, 409, "device_busy", "The agent of \"box\" is in contact; stop it first.")
	default:
		reply(w, 200, wire.Retired{Retired: r.PathValue("id"), Note: "its jobs stay in the history"})
	}
}

func setSettings(w http.ResponseWriter, r *http.Request) {
	var set map[string]any
	if err := json.NewDecoder(r.Body).Decode(&set); err != nil {
		refuse(w, 400, wire.CodeBadRequest, err.Error())
		return
	}
	var all wire.Settings
	_ = json.Unmarshal([]byte(fixtures["/v1/settings"]), &all)
	for name, value := range set {
		if _, ok := all.Settings[name]; !ok {
			refuse(w, 400, "unknown_setting", "There is no setting; list the settings to see their names.")
			return
		}
		switch value := value.(type) {
		case float64:
			all.Settings[name] = int64(value)
		case bool:
			if name != "retain_disconnected_jobs" {
				refuse(w, 400, wire.CodeBadRequest, name+" is no switch; give a whole number")
				return
			}
			all.Settings[name] = map[bool]int64{true: 1}[value]
		}
	}
	reply(w, 200, all)
}

func (c *controller) count(n *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

func (c *controller) list(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shown++
	list := wire.JobList{Jobs: []wire.Job{}}
	q := r.URL.Query()
	for i := len(c.jobs) - 1; i >= 0 && len(list.Jobs) < number(q.Get("limit")); i-- {
		job := c.jobs[i].Job
		fits := func(name, value string) bool { return q.Get(name) == "" || q.Get(name) == value }
		if fits("state", job.State) && fits("device", job.DeviceID) && fits("submitter", job.Submitter) && fits("hold", job.Hold) {
			list.Jobs = append(list.Jobs, job)
		}
	}
	reply(w, 200, list)
}

func (c *controller) kill(w http.ResponseWriter, r *http.Request) {
	var req wire.KillRequest
	_ = json.NewDecoder(r.Body).Decode(&req)
	c.mu.Lock()
	defer c.mu.Unlock()
	job := c.find(w, r)
	switch {
	case job == nil:
	case req.Submitter != job.Submitter:
		refuse(w, 403, "not_job_owner", "the job belongs to "+job.Submitter+"; use --as if that is you")
	case job.FinishedAt != nil:
		refuse(w, 409, "not_cancellable", "the job has ended: "+job.State)
	default:
		job.kill("killed by " + req.Submitter)
		c.emptied(job)
		c.numb(job, r)
	}
}

func (c *controller) stream(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	job := c.find(w, r)
	c.mu.Unlock()
	if job == nil {
		return
	}
	offset, err := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	if err != nil {
		refuse(w, 400, wire.CodeBadRequest, "no offset")
		return
	}
	conn, err := relay.Upgrade(w, r)
	if err != nil {
		refuse(w, 426, "upgrade_required", err.Error())
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s := &script{controller: c, job: job, follow: r.URL.Query().Get("follow") != "false", abort: func() { conn.Close() }}
	_ = relay.Send(ctx, conn, offset, s, relay.SendOptions{})
}

// script plays a job's command as its output.
type script struct {
	controller *controller
	job        *fakeJob
	follow     bool
	abort      func()
	at         int
	offset     int64
	flooded    int
	input      *fakeInput // of an attached job, and how far it has been read
	read       int
}

const floodLine = "fifteen letters\n"

// flood is what a shim reads from a job that prints as fast as it can.
var flood = bytes.Repeat([]byte(floodLine), 2048)

func (s *script) Next(ctx context.Context) (relay.Record, error) {
	for s.at < len(s.job.Command) {
		name, text, _ := strings.Cut(s.job.Command[s.at], ":")
		s.at++
		line := []byte(strings.ReplaceAll(text, "_", " ") + "\n")
		from := s.offset
		switch name {
		case "out", "err":
			stream := wire.StreamStdout
			if name == "err" {
				stream = wire.StreamStderr
			}
			s.offset += int64(len(line))
			return relay.Data{Offset: from, Stream: stream, Bytes: line}, nil
		case "gap":
			s.offset += int64(number(text))
			return relay.Gap{From: from, To: s.offset, Cause: "spool bound"}, nil
		case "flood":
			if s.flooded < number(text)*len(floodLine) {
				n := min(number(text)*len(floodLine)-s.flooded, len(flood))
				s.at--
				s.flooded += n
				s.offset += int64(n)
				return relay.Data{Offset: from, Stream: wire.StreamStdout, Bytes: flood[:n]}, nil
			}
		case "cut":
			if s.firstCut() {
				time.Sleep(50 * time.Millisecond) // what came before is out
				s.abort()
			}
		case "cat":
			if s.input != nil {
				s.at--
				record, err := s.cat(ctx)
				if record != nil || err != nil {
					return record, err
				}
				s.at++
			}
		case "hang":
			if !s.follow {
				return s.end(), nil
			}
			s.controller.count(&s.controller.hanging)
			select {
			case <-s.job.killed:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
	return s.end(), nil
}

func (s *script) firstCut() bool {
	s.controller.mu.Lock()
	defer s.controller.mu.Unlock()
	first := !s.job.cut
	s.job.cut = true
	if first && step(s.job.steps, "twin") != nil {
		s.controller.jobs = append(s.controller.jobs, &fakeJob{Job: wire.Job{ID: s.job.ID + "0", State: "queued"}, looks: -1})
	}
	return first
}

func (s *script) end() relay.End {
	s.controller.mu.Lock()
	defer s.controller.mu.Unlock()
	s.job.over = true
	behind := step(s.job.steps, "behind") != nil || step(s.job.steps, "stalled") != nil
	if s.job.FinishedAt == nil && s.follow && step(s.job.steps, "slow") == nil && !behind {
		s.job.finish()
	}
	return relay.End{Length: s.offset, StreamEnd: wire.StreamEnd{State: s.job.State, Complete: behind || s.job.FinishedAt != nil}}
}
