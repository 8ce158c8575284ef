package api

import (
	"errors"
	"net/http"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// waiting says why a job waits, nil when it does not.
func (v *view) waiting(job *model.Job) *wire.Waiting {
	w, ok := v.WaitingAt(job.Number, v.now.UnixMilli())
	if !ok {
		return nil
	}
	return &wire.Waiting{Reasons: wireReasons(w.Reasons), ExpectedStart: wireExpected(w.Expected)}
}

func wireReasons(reasons []fsm.WaitReason) []wire.WaitReason {
	var out []wire.WaitReason
	for _, r := range reasons {
		one := wire.WaitReason{
			Code: string(r.Code), Message: r.Message, MoreDevices: r.More,
			JobsAhead: r.Ahead, WholeFleet: r.Fleet,
			MaxRuntimeSeconds: r.RuntimeS, LargestCeilingSeconds: r.LargestS,
			Labels: r.Keys, Since: optionalTime(r.SinceMS),
		}
		for _, d := range r.Devices {
			one.Devices = append(one.Devices, wireWaitDevice(d))
		}
		out = append(out, one)
	}
	return out
}

func wireWaitDevice(d fsm.WaitDevice) wire.WaitDevice {
	out := wire.WaitDevice{
		DeviceID: d.Device, State: d.State.String(), NotDeclared: d.Absent,
		QuarantineReason: d.Reason.String(), Detail: d.Detail,
		Holder: d.Holder, Reason: d.Note, LatestEnd: latestTime(d.LatestEndMS), PastLimit: d.Past,
	}
	if d.Job != 0 {
		out.JobID = model.JobID(d.Job)
	}
	return out
}

func wireExpected(e fsm.Expected) wire.ExpectedStart {
	return wire.ExpectedStart{Earliest: optionalTime(e.EarliestMS), Latest: latestTime(e.LatestMS), Note: e.Note}
}

// latestTime is optionalTime for an upper bound, which is rounded up.
func latestTime(ms int64) *time.Time {
	if ms == 0 {
		return nil
	}
	return optionalTime(ms + time.Second.Milliseconds() - 1)
}

// longestRuntime bounds max_runtime_seconds of a question: ten years, as the
// lease table bounds those of jobs.
const longestRuntime = 10 * 365 * 24 * 3600

// explain says what would become of a job with a selector, or becomes of a
// queued one.
func (s *server) explain(w http.ResponseWriter, r *http.Request, _ Identity) error {
	query := r.URL.Query()
	text, id := query.Get("selector"), query.Get("job")
	if (text == "") == (id == "") {
		return badRequest("name a selector, /v1/explain?selector=vram>=40G, or a queued job, /v1/explain?job=j-48213")
	}
	runtime, err := intParam(r, "max_runtime_seconds", 0, longestRuntime, 0)
	if err != nil {
		return err
	}
	v, err := s.viewFor(r, false)
	if err != nil {
		return err
	}
	if id != "" {
		if query.Has("max_runtime_seconds") {
			return badRequest("a job has its own runtime; leave out max_runtime_seconds, or give a selector")
		}
		return s.explainJob(w, v, id)
	}
	e, err := v.Explain(text, runtime, v.now.UnixMilli())
	if err != nil { // the selector's, the only one there is
		return refuse(http.StatusBadRequest, string(command.BadSelector), "%v", err)
	}
	out := wireExplain(e)
	out.Selector, out.MaxRuntimeSeconds = text, runtime
	return s.send(w, v.reply(w, out))
}

func (s *server) explainJob(w http.ResponseWriter, v *view, id string) error {
	job, err := v.job(id)
	if err != nil {
		return err
	}
	e, err := v.ExplainJob(job.Number, v.now.UnixMilli())
	if errors.Is(err, fsm.ErrNotFound) {
		return refuse(http.StatusConflict, wire.CodeNotQueued, "job %s is %s, and only a queued job waits; look at it with rc jobs", job.ID(), job.State)
	}
	if err != nil {
		return err
	}
	out := wireExplain(e)
	out.JobID, out.Selector, out.DeviceID = job.ID(), job.Selector, job.Pinned
	if job.CeilingAsked {
		out.MaxRuntimeSeconds = job.MaxRuntimeS
	}
	return s.send(w, v.reply(w, out))
}

func wireExplain(e fsm.Explanation) wire.Explain {
	out := wire.Explain{
		Matching:      append([]string{}, e.Matching...),
		Free:          append([]string{}, e.Free...),
		QueueDepth:    e.QueueDepth,
		Tolerating:    append([]string{}, e.Tolerating...),
		Devices:       []wire.ExplainedDevice{},
		MoreDevices:   e.More,
		Reasons:       wireReasons(e.Waiting.Reasons),
		ExpectedStart: wireExpected(e.Waiting.Expected),
	}
	for _, d := range e.Devices {
		out.Devices = append(out.Devices, wire.ExplainedDevice{
			WaitDevice: wireWaitDevice(d.WaitDevice), CeilingSeconds: d.CeilingS, Tolerates: d.Tolerates,
		})
	}
	return out
}
