package fsm

import (
	"errors"
	"strings"
	"testing"

	"rcd/model"
)

// TestCheckFindsWhatIsBroken: a check that finds nothing in a broken state is
// worse than none. Each case breaks the state behind the machine's back.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	for _, c := range []struct {
		name     string
		breakIt  func(*View)
		contains string
	}{
		{"a row written in place", func(v *View) { v.jobs.get(1).Note = "changed" }, "written in place"},
		{"the digest", func(v *View) { v.digest.low++ }, "the rows give"},
		{"the meta row", func(v *View) { v.meta.LastJob++ }, "the rows give"},
		{"a queue key", func(v *View) { o, _ := v.queue.tree.Min(); v.queue.tree.Delete(o) }, "index queue"},
		{"a pinned key", func(v *View) { o, _ := v.pinned.tree.Min(); v.pinned.tree.Delete(o) }, "index pinned"},
		{"an active key", func(v *View) { v.active.tree.Set(99) }, "index active"},
		{"an ended key", func(v *View) { v.ended.tree.Clear() }, "index ended"},
		{"an end by state", func(v *View) { v.byEnd.tree.Clear() }, "index by end"},
		{"a device's history", func(v *View) { v.byDevice.tree.PopMax() }, "index by device"},
		{"a submitter's history", func(v *View) { v.bySubmitter.tree.PopMax() }, "index by submitter"},
		{"a request's age", func(v *View) { v.requestAge.tree.PopMax() }, "index request age"},
		{"queued bytes", func(v *View) { v.queuedBytes++ }, "the queue takes"},
		{"finished bytes", func(v *View) { v.finishedBytes++ }, "the finished jobs take"},
		{"the tally", func(v *View) { v.targets.tree.Set("s zz", 1) }, "tally"},
		{"a counter", func(v *View) { v.meta.LastJob = 1 }, "above its counter"},
		{"a lease gone", func(v *View) { v.leases.tree.PopMax() }, "does not hold lease"},
		{"a device gone", func(v *View) { v.devices.tree.Delete("box:gpu0") }, "names device box:gpu0"},
		{"an agent gone", func(v *View) { v.agents.tree.Delete("box") }, "has no agent"},
		{"a request under another key", func(v *View) { _, q, _ := v.requests.tree.PopMax(); v.requests.tree.Set("zz", q) }, "another key"},
		{"a ready device beside a waiting job", func(v *View) {
			d := *v.devices.get("box:gpu0")
			v.leases.tree.Delete(d.Lease)
			d.State, d.Lease = model.DeviceReady, 0
			v.devices.tree.Set(d.ID, &cell[model.Device]{row: d})
		}, "which it could run"},
		{"a ready device whose agent is silent", func(v *View) {
			a := *v.agents.get("free")
			a.Silent = true
			v.agents.tree.Set("free", &cell[model.Agent]{row: a})
		}, "is ready with"},
		{"two jobs think they hold a lease", func(v *View) {
			j := *v.jobs.get(1)
			j.State = model.JobAssigned
			v.jobs.tree.Set(1, &cell[model.Job]{row: j})
		}, "does not hold lease"},
		{"a device under a lease of another", func(v *View) {
			d := *v.devices.get("free:g")
			d.State, d.Lease = model.DeviceBusy, 1
			v.devices.tree.Set(d.ID, &cell[model.Device]{row: d})
		}, "does not name it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := busyBox(t)
			c.breakIt(l.m.work)
			err := l.m.Check()
			if !errors.Is(err, ErrInvariant) || !strings.Contains(err.Error(), c.contains) {
				t.Errorf("found %v, want %q", err, c.contains)
			}
		})
	}
}

// TestCheckEntryFindsAMissedPlacement: the incremental check looks at law 6
// for what the entry touched.
func TestCheckEntryFindsAMissedPlacement(t *testing.T) {
	l := busyBox(t)
	l.check = false
	l.queued(pinned("box:gpu0"))
	d := *l.m.work.devices.get("box:gpu0")
	d.State, d.Lease = model.DeviceReady, 0
	l.m.work.devices.tree.Set(d.ID, &cell[model.Device]{row: d})
	missed := func(what string) {
		if err := l.m.CheckEntry(); err == nil || !strings.Contains(err.Error(), "which it could run") {
			t.Errorf("%s: found %v", what, err)
		}
	}
	missed("by the job that the entry wrote")
	l.m.work.jobs.dirty, l.m.work.devices.dirty = nil, []string{d.ID}
	missed("by the device that the entry wrote")
}
