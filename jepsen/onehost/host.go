package onehost

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"

	"rcd/wire"
)

// Device is the one there is.
const Device = "box:gpu0"

// Host answers as a controller. Set its fields before it is asked anything.
type Host struct {
	*httptest.Server
	// Home is where jobs begin, Path their PATH.
	Home, Path string
	// Instead, if not nil, is what runs in place of a command.
	Instead func(command []string) []string
	// Cut breaks each of the first Cuts links after so many bytes of input or
	// output.
	Cut  int
	Cuts int
	// Stalled has jobs' input taken by nobody.
	Stalled bool

	mu     sync.Mutex
	jobs   []*job
	holder *job // nil while the device is free
	sent   int64
}

// New starts a host, which ends with the test, with all that runs on it.
func New(t testing.TB) *Host {
	h := &Host{Home: t.TempDir(), Path: os.Getenv("PATH")}
	h.Start()
	t.Cleanup(h.End)
	return h
}

// Start serves; for New and for tests that have no testing.TB.
func (h *Host) Start() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/devices/{id}/describe", h.describe)
	mux.HandleFunc("GET /v1/jobs", h.list)
	mux.HandleFunc("GET /v1/jobs/{id}", h.view)
	mux.HandleFunc("POST /v1/jobs", h.submit)
	mux.HandleFunc("POST /v1/jobs/{id}/kill", h.kill)
	mux.HandleFunc("GET /v1/jobs/{id}/attach", h.attach)
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(wire.HeaderInstance, "00000000-0000-4000-8000-000000000000")
		w.Header().Set(wire.HeaderNode, "c1")
		mux.ServeHTTP(w, r)
	}))
}

// End ends what runs, and waits for it.
func (h *Host) End() {
	h.mu.Lock()
	jobs := h.jobs
	h.mu.Unlock()
	for _, j := range jobs {
		j.end()
	}
	h.CloseClientConnections()
	h.Close()
}

// Sent is how many bytes of input have come, each counted once.
func (h *Host) Sent() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sent
}

// Hold gives the device to a job of a kind that has no process, and returns its
// ID.
func (h *Host) Hold(kind, submitter string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	j := h.newJob(wire.SubmitRequest{Kind: kind, Submitter: submitter, DeviceID: Device})
	close(j.done)
	h.holder = j
	return j.ID
}

// Release ends what Hold has made, if there is such a thing.
func (h *Host) Release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.holder != nil {
		h.finish(h.holder, "killed", "released", nil)
	}
}

// Running lists the IDs of jobs that have not ended and have a process.
func (h *Host) Running() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []string
	for _, j := range h.jobs {
		if j.FinishedAt == nil && j.cmd != nil {
			list = append(list, j.ID)
		}
	}
	return list
}

// Job returns a job as the API does.
func (h *Host) Job(id string) wire.Job {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, j := range h.jobs {
		if j.ID == id {
			return j.Job
		}
	}
	return wire.Job{}
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	reply(w, status, wire.Error{Code: code, Message: message})
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func (h *Host) describe(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r.PathValue("id") != Device {
		refuse(w, 404, wire.CodeNotFound, "there is no device "+r.PathValue("id")+"; look with: rc devices")
		return
	}
	d := wire.Describe{Device: wire.Device{ID: Device, State: "ready"}}
	if h.holder != nil {
		d.Device.State, d.JobID, d.Holder = "busy", h.holder.ID, h.holder.Submitter
	}
	reply(w, 200, d)
}

func (h *Host) list(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := wire.JobList{Jobs: []wire.Job{}}
	for _, j := range h.jobs {
		if q := r.URL.Query(); q.Get("state") == j.State && q.Get("submitter") == j.Submitter {
			list.Jobs = append(list.Jobs, j.Job)
		}
	}
	reply(w, 200, list)
}

// find calls f with the job of the path, under the lock.
func (h *Host) find(w http.ResponseWriter, r *http.Request, f func(*job)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, j := range h.jobs {
		if j.ID == r.PathValue("id") {
			f(j)
			return
		}
	}
	refuse(w, 404, wire.CodeNotFound, "there is no job "+r.PathValue("id"))
}

func (h *Host) view(w http.ResponseWriter, r *http.Request) {
	h.find(w, r, func(j *job) { reply(w, 200, wire.JobView{Job: j.Job}) })
}

func (h *Host) submit(w http.ResponseWriter, r *http.Request) {
	var req wire.SubmitRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		refuse(w, 400, wire.CodeBadRequest, err.Error())
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case req.Hold != "" && (h.holder == nil || h.holder.ID != req.Hold || h.holder.Submitter != req.Submitter || req.DeviceID != ""):
		refuse(w, 409, "hold_not_running", "there is no such hold of yours")
		return
	case req.Hold == "" && h.holder != nil:
		refuse(w, 409, wire.CodeNoDevice, "busy")
		return
	case req.Stdio != "pipe" || req.NoWait == (req.Hold != ""):
		refuse(w, 400, wire.CodeBadRequest, "this host runs pipe jobs only, and has no queue")
		return
	}
	j := h.newJob(req)
	if req.Hold == "" {
		h.holder = j
	}
	if err := h.start(j, req); err != nil {
		refuse(w, 500, "start_failed", err.Error())
		return
	}
	reply(w, 201, j.Job)
}

// newJob adds a job. The caller holds mu.
func (h *Host) newJob(req wire.SubmitRequest) *job {
	now := time.Now()
	kind := req.Kind
	if kind == "" {
		kind = "job"
	}
	j := &job{host: h, grown: make(chan struct{}), done: make(chan struct{}), Job: wire.Job{
		ID: fmt.Sprintf("j-%d", len(h.jobs)+1), Kind: kind, Command: req.Command, Env: req.Env, Submitter: req.Submitter, Stdio: req.Stdio,
		DeviceID: Device, Hold: req.Hold, State: "running", SubmittedAt: now, StartedAt: &now, Lease: "l-1",
	}}
	h.jobs = append(h.jobs, j)
	return j
}

// finish ends a job in the table. The caller holds mu.
func (h *Host) finish(j *job, state, reason string, code *int) {
	now := time.Now()
	j.State, j.KillReason, j.ExitCode, j.FinishedAt = state, reason, code, &now
	if h.holder == j {
		h.holder = nil
	}
	j.wake()
}

func (h *Host) kill(w http.ResponseWriter, r *http.Request) {
	var req wire.KillRequest
	_ = json.NewDecoder(r.Body).Decode(&req)
	h.find(w, r, func(j *job) {
		switch {
		case j.FinishedAt != nil:
			refuse(w, 409, "not_cancellable", "it has ended")
		case j.Submitter != req.Submitter:
			refuse(w, 403, "not_job_owner", "it is not yours")
		default:
			j.killed = "killed by " + req.Submitter
			j.signal()
			reply(w, 200, j.Job)
		}
	})
}
