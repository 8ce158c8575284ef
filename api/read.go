package api

import (
	"net/http"

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
	list, filter, err := wantsJobs(r)
	if err != nil {
		return err
	}
	v, err := s.viewWhen(r, false, jobsConcern(filter))
	if err != nil {
		return err
	}
	rows := v.Jobs(filter)
	return s.send(w, v.reply(w, wire.JobList{Jobs: wireJobs(rows), NextCursor: v.nextCursor(list, filter, rows)}))
}

func (s *server) job(w http.ResponseWriter, r *http.Request, _ Identity) error {
	v, err := s.viewWhen(r, false, jobConcerns(r.PathValue("id")))
	if err != nil {
		return err
	}
	job, err := v.job(r.PathValue("id"))
	if err != nil {
		return err
	}
	return s.send(w, v.reply(w, wire.JobView{Job: wireJob(job), QueuePosition: v.QueuePosition(job.Number), Waiting: v.waiting(job)}))
}

func (s *server) devices(w http.ResponseWriter, r *http.Request, _ Identity) error {
	v, err := s.viewWhen(r, true, devicesConcern)
	if err != nil {
		return err
	}
	return s.send(w, v.reply(w, v.deviceViews()))
}

func (s *server) state(w http.ResponseWriter, r *http.Request, _ Identity) error {
	v, err := s.viewWhen(r, true, stateConcerns)
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
