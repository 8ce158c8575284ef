package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"rcd/model"
	"rcd/wire"
)

func want(job, lease uint64, state model.JobState) Desired {
	return Desired{Job: job, Lease: lease, State: state, Start: wire.StartJob{Job: job, Lease: lease}}
}

func killed(d Desired, by string) Desired {
	d.KillRequested, d.KillReason = true, by
	return d
}

func has(job, lease uint64, phase wire.JobPhase) wire.ReportedJob {
	return wire.ReportedJob{Job: job, Lease: lease, Phase: phase}
}

func (a Action) line() string {
	s := fmt.Sprintf("%s j%d l%d", a.Kind, a.Job, a.Lease)
	if a.MarkStarted {
		s += " mark"
	}
	if a.Start != nil {
		s += " with-spec"
	}
	if a.Reason != "" {
		s += ": " + a.Reason
	}
	return s
}

func TestReconcileRules(t *testing.T) {
	const assigned, running = model.JobAssigned, model.JobRunning
	ending := has(1, 10, wire.PhaseRunning)
	ending.Killing = true
	tests := []struct {
		name     string
		desired  []Desired
		reported []wire.ReportedJob
		want     []string
	}{
		{"nothing", nil, nil, nil},
		{"wanted and running is adopted", []Desired{want(1, 10, running)}, []wire.ReportedJob{has(1, 10, wire.PhaseRunning)},
			[]string{"adopt j1 l10"}},
		{"assigned and running is marked", []Desired{want(1, 10, assigned)}, []wire.ReportedJob{has(1, 10, wire.PhaseRunning)},
			[]string{"adopt j1 l10 mark"}},
		{"starting is not marked", []Desired{want(1, 10, assigned)}, []wire.ReportedJob{has(1, 10, wire.PhaseStarting)},
			[]string{"adopt j1 l10"}},
		{"jobs of one lease are each for themselves, in their order", []Desired{want(3, 10, assigned), want(1, 10, running), killed(want(2, 10, running), "killed by ann")},
			[]wire.ReportedJob{has(1, 10, wire.PhaseRunning), has(2, 10, wire.PhaseRunning), has(4, 10, wire.PhaseRunning)},
			[]string{"kill j2 l10: killed by ann", "kill j4 l10: " + ReasonNotDesired, "adopt j1 l10", "start j3 l10 with-spec"}},
		{"what never began under a lease that goes on is fenced off", []Desired{killed(want(2, 10, assigned), "hold j-1 ended")}, []wire.ReportedJob{has(1, 10, wire.PhaseEnded)},
			[]string{"report j1 l10", "kill j2 l10 with-spec: hold j-1 ended"}},
		{"not named is started", []Desired{want(1, 10, assigned)}, nil, []string{"start j1 l10 with-spec"}},
		{"running but not named is ordered again: the fence decides", []Desired{want(1, 10, running)}, nil,
			[]string{"start j1 l10 with-spec"}},
		{"kill asked", []Desired{killed(want(1, 10, running), "killed by ann")}, []wire.ReportedJob{has(1, 10, wire.PhaseRunning)},
			[]string{"kill j1 l10: killed by ann"}},
		{"kill asked, no reason kept", []Desired{killed(want(1, 10, running), "")}, []wire.ReportedJob{has(1, 10, wire.PhaseRunning)},
			[]string{"kill j1 l10: cancelled"}},
		{"kill asked and under way", []Desired{killed(want(1, 10, running), "x")}, []wire.ReportedJob{ending}, nil},
		{"kill asked, never named: fenced off, not started", []Desired{killed(want(1, 10, assigned), "x")}, nil,
			[]string{"kill j1 l10 with-spec: x"}},
		{"kill asked and ended is reported", []Desired{killed(want(1, 10, running), "x")}, []wire.ReportedJob{has(1, 10, wire.PhaseEnded)},
			[]string{"report j1 l10"}},
		{"wanted and ended is reported", []Desired{want(1, 10, running)}, []wire.ReportedJob{has(1, 10, wire.PhaseEnded)},
			[]string{"report j1 l10"}},
		{"not wanted and running is killed", nil, []wire.ReportedJob{has(1, 10, wire.PhaseRunning)},
			[]string{"kill j1 l10: " + ReasonNotDesired}},
		{"not wanted and starting is killed", nil, []wire.ReportedJob{has(1, 10, wire.PhaseStarting)},
			[]string{"kill j1 l10: " + ReasonNotDesired}},
		{"not wanted and being ended is let be", nil, []wire.ReportedJob{ending}, nil},
		{"not wanted and ended is reported", nil, []wire.ReportedJob{has(1, 10, wire.PhaseEnded)},
			[]string{"report j1 l10"}},
		{"older lease running: killed, new one started", []Desired{want(1, 12, assigned)}, []wire.ReportedJob{has(1, 10, wire.PhaseRunning)},
			[]string{"kill j1 l10: " + ReasonOldLease, "start j1 l12 with-spec"}},
		{"older lease ended: reported, new one started", []Desired{want(1, 12, assigned)}, []wire.ReportedJob{has(1, 10, wire.PhaseEnded)},
			[]string{"report j1 l10", "start j1 l12 with-spec"}},
		{"old and new named", []Desired{want(1, 12, running)}, []wire.ReportedJob{has(1, 10, wire.PhaseEnded), has(1, 12, wire.PhaseRunning)},
			[]string{"report j1 l10", "adopt j1 l12"}},
		{"newer lease named: this view is stale", []Desired{want(1, 10, running)}, []wire.ReportedJob{has(1, 12, wire.PhaseRunning)}, nil},
		{"newer and own named: still stale", []Desired{killed(want(1, 10, running), "x")},
			[]wire.ReportedJob{has(1, 10, wire.PhaseRunning), has(1, 12, wire.PhaseRunning)}, nil},
		{"what frees a device comes first", []Desired{want(1, 20, assigned), want(3, 7, running)},
			[]wire.ReportedJob{has(9, 5, wire.PhaseRunning), has(3, 7, wire.PhaseRunning), has(8, 6, wire.PhaseEnded)},
			[]string{"report j8 l6", "kill j9 l5: " + ReasonNotDesired, "adopt j3 l7", "start j1 l20 with-spec"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, a := range Reconcile(tt.desired, tt.reported) {
				got = append(got, a.line())
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestReconcileDoesNotDependOnOrder(t *testing.T) {
	desired := []Desired{want(1, 20, model.JobAssigned), want(2, 21, model.JobRunning), killed(want(3, 22, model.JobRunning), "x"), want(4, 23, model.JobAssigned)}
	reported := []wire.ReportedJob{has(1, 3, wire.PhaseRunning), has(1, 4, wire.PhaseEnded), has(2, 21, wire.PhaseRunning), has(3, 22, wire.PhaseRunning), has(7, 2, wire.PhaseRunning)}
	lines := func() (out []string) {
		for _, a := range Reconcile(desired, reported) {
			out = append(out, a.line())
		}
		return out
	}
	first := lines()
	r := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		r.Shuffle(len(desired), func(i, j int) { desired[i], desired[j] = desired[j], desired[i] })
		r.Shuffle(len(reported), func(i, j int) { reported[i], reported[j] = reported[j], reported[i] })
		if got := lines(); !slices.Equal(got, first) {
			t.Fatalf("got %q, want %q", got, first)
		}
	}
}
