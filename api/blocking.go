package api

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
)

// A read with an index waits until something that concerns its answer has
// happened above that index, or until its time is up, and then answers as
// ever. What concerns an answer is coarse: an answer may be the same as the
// last one. What only the clock changes (ages) wakes nobody.
const (
	defaultWait = 30 * time.Second
	maxWait     = 5 * time.Minute

	// waitJitter is the part of a wait that may be added to it, so that readers
	// who came together do not all come back together.
	waitJitter = 16

	// listSettle is how long a list is held back after a change, so that a
	// burst is one answer and a busy cluster does not make a waiting read a
	// busy one; queueSettle is the same for a queued job when only others have
	// moved.
	listSettle  = 100 * time.Millisecond
	queueSettle = time.Second

	// contactCheck is how often a waiting read looks whether its node is still
	// in touch with the cluster: one that is not hears of nothing.
	contactCheck = 5 * time.Second

	// maxWaiters bounds reads that wait; each costs a goroutine and a timer.
	maxWaiters = 4096
)

// interest says which events concern an answer.
type interest struct {
	job     uint64 // whose events are answered at once; 0: no such
	related func(*record) bool
	settle  time.Duration // for related ones, from the beginning of the wait
}

// waitOptions are what a request says about waiting.
type waitOptions struct {
	asked bool
	index uint64
	wait  time.Duration
}

func wantsWait(r *http.Request) (waitOptions, error) {
	query := r.URL.Query()
	o := waitOptions{wait: defaultWait}
	if text := query.Get("wait"); text != "" {
		wait, err := time.ParseDuration(text)
		if err != nil || wait < 0 {
			return o, badRequest("wait is %q; use a duration such as 30s, at most %s", text, maxWait)
		}
		if !query.Has("index") {
			return o, badRequest("wait needs an index: give the Rc-Index of the answer that you have, or leave wait out")
		}
		o.wait = min(wait, maxWait)
	}
	if text := query.Get("index"); text != "" {
		index, err := strconv.ParseUint(text, 10, 63)
		if err != nil || text[0] == '+' {
			return o, badRequest("index is %q; use the Rc-Index of an earlier answer", text)
		}
		o.asked, o.index = index > 0, index
	}
	return o, nil
}

// viewWhen is viewFor that waits as the query asks; concerns says what changes
// the answer that would be given now, or refuses it.
func (s *server) viewWhen(r *http.Request, heard bool, concerns func(*view) (interest, error)) (*view, error) {
	o, err := wantsWait(r)
	if err != nil {
		return nil, err
	}
	v, err := s.viewFor(r, heard)
	if err != nil || !o.asked {
		return v, err
	}
	about, err := concerns(v)
	if err != nil {
		return nil, err
	}
	if o.index > v.Index() && !v.stale {
		return v, nil // an index of another history: nothing to wait for
	}
	select {
	case s.waiters <- struct{}{}:
		defer func() { <-s.waiters }()
	default:
		return nil, errOverloaded
	}
	wait := o.wait
	if wait >= waitJitter {
		wait += rand.N(wait / waitJitter)
	}
	ctx, cancel := context.WithTimeout(r.Context(), wait)
	defer cancel()
	s.await(ctx, about, after(o.index))
	return s.viewFor(r, heard)
}

// await returns when something of interest has happened above id, when ctx
// ends, or when this node is out of touch and the read must find out what to
// say of that.
func (s *server) await(ctx context.Context, about interest, id eventID) {
	log := s.backend.Events()
	var own <-chan struct{}
	if about.job != 0 {
		ch, stop := log.watchJob(about.job)
		defer stop()
		own = ch
	}
	settle := time.NewTimer(about.settle)
	defer settle.Stop()
	settled := false
	check := time.NewTicker(contactCheck)
	defer check.Stop()
	related := false
	for {
		p := log.after(id, maxEvents)
		if !p.whole {
			return // something has happened, and nobody knows what
		}
		for _, r := range p.records {
			if about.job != 0 && r.job == about.job {
				return
			}
			related = related || about.related != nil && about.related(r)
		}
		id = p.next
		if related && settled {
			return
		}
		// Until it has settled the news are left alone: what concerns others is
		// then looked at once, not at each entry.
		news := p.news
		if !settled || about.related == nil {
			news = nil
		}
		select {
		case <-own:
		case <-news:
			if !pauseFor(ctx, lookPause, own) {
				return
			}
		case <-settle.C:
			settled = true
		case <-check.C:
			if s.backend.Leader().ID == "" || s.backend.Halted() != "" {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// lookPause is the least time between two looks of a waiting read at news that
// may be of no interest to it.
const lookPause = 25 * time.Millisecond

// pauseFor waits a while, or until sooner receives; false when ctx has ended.
func pauseFor(ctx context.Context, d time.Duration, sooner <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-sooner:
	case <-ctx.Done():
		return false
	}
	return true
}

// What concerns each answer.

func (r *record) ofJobs() bool { return eventKinds[r.kind].of == kindJobs }

// ofDevices reports whether the event changes what a list of devices shows.
func (r *record) ofDevices() bool {
	switch r.kind {
	case command.EventJobPlaced, command.EventLeaseEnded, command.EventAgentRegistered:
		return true
	}
	return eventKinds[r.kind].of == kindDevices
}

func devicesConcern(*view) (interest, error) {
	return interest{related: (*record).ofDevices, settle: listSettle}, nil
}

func stateConcerns(*view) (interest, error) {
	return interest{related: func(r *record) bool { return r.ofJobs() || r.ofDevices() }, settle: listSettle}, nil
}

// jobsConcern is what changes a list of jobs. State is left aside: a job that
// leaves the list changes it too.
func jobsConcern(filter fsm.JobFilter) func(*view) (interest, error) {
	fits := func(want, is string) bool { return want == "" || is == "" || want == is }
	return func(*view) (interest, error) {
		return interest{settle: listSettle, related: func(r *record) bool {
			inside := filter.Hold == 0 || r.owner == "" || r.hold == filter.Hold
			return r.ofJobs() && inside && fits(filter.Device, r.device) && fits(filter.Submitter, r.owner)
		}}, nil
	}
}

// jobConcerns is what changes the answer about one job. While it is queued its
// place and the reasons why it waits depend on all others.
func jobConcerns(id string) func(*view) (interest, error) {
	return func(v *view) (interest, error) {
		job, err := v.job(id)
		if err != nil {
			return interest{}, err
		}
		about := interest{job: job.Number}
		if job.State == model.JobQueued {
			about.settle = queueSettle
			about.related = func(r *record) bool { return r.ofJobs() || r.ofDevices() }
		}
		return about, nil
	}
}

// deviceConcerns is what changes the description of one device: what happens on
// its host, and to jobs that are pinned to it.
func deviceConcerns(id string) func(*view) (interest, error) {
	return func(v *view) (interest, error) {
		device, err := v.device(id)
		if err != nil {
			return interest{}, err
		}
		return interest{settle: listSettle, related: func(r *record) bool {
			return r.device == id || r.host != "" && r.host == device.Host
		}}, nil
	}
}
