package api

import (
	"net/http"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// How many jobs a listing shows.
const (
	defaultJobs = 20
	maxJobs     = 200

	// recentJobs is how many a device's description names.
	recentJobs = 5
)

func (s *server) whoami(w http.ResponseWriter, _ *http.Request, who Identity) error {
	return s.send(w, reply{status: http.StatusOK, body: wire.Whoami{Role: string(who.Role)}})
}

func (s *server) jobs(w http.ResponseWriter, r *http.Request, _ Identity) error {
	limit, err := intParam(r, "limit", 1, maxJobs, defaultJobs)
	if err != nil {
		return err
	}
	query := r.URL.Query()
	filter := fsm.JobFilter{Limit: int(limit), Device: query.Get("device"), Submitter: query.Get("submitter")}
	if word := query.Get("state"); word != "" {
		state, ok := model.ParseJobState(word)
		if !ok {
			return badRequest("state %q is unknown; use queued, assigned, running, succeeded, failed, killed or lost", word)
		}
		filter.State = &state
	}
	v, err := s.viewFor(r, false)
	if err != nil {
		return err
	}
	return s.send(w, v.reply(w, wire.JobList{Jobs: wireJobs(v.Jobs(filter))}))
}

func (s *server) job(w http.ResponseWriter, r *http.Request, _ Identity) error {
	v, err := s.viewFor(r, false)
	if err != nil {
		return err
	}
	job, err := v.job(r.PathValue("id"))
	if err != nil {
		return err
	}
	return s.send(w, v.reply(w, wire.JobView{Job: wireJob(job), QueuePosition: v.QueuePosition(job.Number)}))
}

func (s *server) devices(w http.ResponseWriter, r *http.Request, _ Identity) error {
	v, err := s.viewFor(r, true)
	if err != nil {
		return err
	}
	return s.send(w, v.reply(w, v.deviceViews()))
}

func (s *server) state(w http.ResponseWriter, r *http.Request, _ Identity) error {
	v, err := s.viewFor(r, true)
	if err != nil {
		return err
	}
	out := wire.State{
		Devices:              v.deviceViews(),
		Jobs:                 wireJobs(v.Active()),
		Queued:               []wire.Job{},
		QueuedWaitingSeconds: map[string]int64{},
	}
	for job := range v.Queued() {
		out.Queued = append(out.Queued, wireJob(job))
		out.QueuedWaitingSeconds[job.ID()] = v.secondsSinceMS(job.QueuedAtMS)
	}
	return s.send(w, v.reply(w, out))
}

func (s *server) explain(w http.ResponseWriter, r *http.Request, _ Identity) error {
	text := r.URL.Query().Get("selector")
	if text == "" {
		return badRequest("name a selector: /v1/explain?selector=vram>=40G")
	}
	v, err := s.viewFor(r, false)
	if err != nil {
		return err
	}
	all, free, err := v.Matching(text)
	depth := 0
	if err == nil {
		depth, err = v.QueueDepth(text)
	}
	if err != nil { // the selector's, the only one there is
		return refuse(http.StatusBadRequest, string(command.BadSelector), "%v", err)
	}
	return s.send(w, v.reply(w, wire.Explain{
		Selector:   text,
		Matching:   append([]string{}, all...),
		Free:       append([]string{}, free...),
		QueueDepth: depth,
	}))
}

func (s *server) describe(w http.ResponseWriter, r *http.Request, _ Identity) error {
	v, err := s.viewFor(r, true)
	if err != nil {
		return err
	}
	id := r.PathValue("id")
	device := v.Device(id)
	if device == nil {
		return refuse(http.StatusNotFound, wire.CodeNotFound, "there is no device %q; rc devices lists those there are", id)
	}
	about := v.deviceView(device)
	out := wire.Describe{
		Device:              about.Device,
		Holder:              about.Holder,
		JobID:               about.JobID,
		ElapsedSeconds:      about.ElapsedSeconds,
		HeartbeatAgeSeconds: about.HeartbeatAgeSeconds,
		QuarantineReason:    about.QuarantineReason,
		Labels:              about.Device.Labels,
		LabelAgeSeconds:     map[string]int64{},
		RecentJobs:          wireJobs(v.Jobs(fsm.JobFilter{Limit: recentJobs, Device: id})),
	}
	for _, l := range out.Labels {
		out.LabelAgeSeconds[l.Key+"/"+l.Source] = v.seconds(l.UpdatedAt)
	}
	return s.send(w, v.reply(w, out))
}

func (s *server) healthz(w http.ResponseWriter, _ *http.Request) {
	_ = s.send(w, reply{status: http.StatusOK, raw: []byte("ok\n"), contentType: "text/plain; charset=utf-8"})
}

// readyz says whether this node knows a leader, so that a balancer sends
// requests to nodes that can answer them.
func (s *server) readyz(w http.ResponseWriter, r *http.Request) {
	leader := s.backend.Leader().ID
	if leader == "" {
		s.fail(w, r, errNoLeader)
		return
	}
	_ = s.send(w, reply{status: http.StatusOK, leader: leader, body: struct {
		Ready  bool   `json:"ready"`
		Leader string `json:"leader"`
	}{true, leader}})
}
