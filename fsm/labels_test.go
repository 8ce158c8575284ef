package fsm

import (
	"fmt"
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// told returns the events of one kind in the last entry.
func told(l *log, kind command.EventKind) []command.Event {
	var events []command.Event
	for _, e := range l.events {
		if e.Kind == kind {
			events = append(events, e)
		}
	}
	return events
}

func configured(name string, value int64) *command.ConfigSet {
	return &command.ConfigSet{Settings: []command.Setting{{Name: name, Value: value}}}
}

func kvs(pairs ...string) []command.KV {
	var set []command.KV
	for i := 0; i+1 < len(pairs); i += 2 {
		set = append(set, command.KV{Key: pairs[i], Value: pairs[i+1]})
	}
	return set
}

// labelled replaces the labels of box:gpu0 from one source.
func labelled(source model.Source, pairs ...string) *command.LabelsReplace {
	return &command.LabelsReplace{Host: "box", Instance: "i1", Source: source, Sets: []command.DeviceLabels{{Name: "gpu0", Labels: kvs(pairs...)}}}
}

func TestRefusedLabelsChangeNothing(t *testing.T) {
	l := box(t)
	l.ok(register("box:far", "f1", spec("gpu0", 0, "rack", "r7")))
	l.ok(configured("max_labels", 2))
	with := func(change func(*command.LabelsReplace)) *command.LabelsReplace {
		b := labelled(model.Declared, "rack", "r9") // the first set is good: all or nothing
		change(b)
		return b
	}
	set := func(name string, pairs ...string) func(*command.LabelsReplace) {
		return func(b *command.LabelsReplace) {
			b.Sets = append(b.Sets, command.DeviceLabels{Name: name, Labels: kvs(pairs...)})
		}
	}
	for _, c := range []struct {
		name string
		code command.Code
		body *command.LabelsReplace
	}{
		{"an unknown source", command.BadRequest, with(func(b *command.LabelsReplace) { b.Source = 2 })},
		{"an unregistered device", command.DeviceNotFound, with(set("gpu7"))},
		{"a device of a host whose name begins alike", command.DeviceNotFound, with(set("far:gpu0", "rack", "r1"))},
		{"one device twice", command.BadRequest, with(set("gpu0"))},
		{"one key twice", command.BadRequest, with(set("gpu1", "a", "1", "a", "2"))},
		{"an empty key", command.BadRequest, with(set("gpu1", "", "1"))},
		{"too many", command.LimitExceeded, with(set("gpu1", "a", "1", "b", "1", "c", "1"))},
		{"a long key", command.LimitExceeded, with(set("gpu1", strings.Repeat("k", 1025), "1"))},
		{"a long value", command.LimitExceeded, with(set("gpu1", "k", strings.Repeat("v", 1025)))},
	} {
		t.Run(c.name, func(t *testing.T) { l.refused(c.code, c.body) })
	}
	l.ok(with(set("gpu1", strings.Repeat("k", 1024), "1", "v", strings.Repeat("v", 1024)))) // the bounds themselves
	if n := len(l.device("box:gpu1").Declared); n != 2 {
		t.Errorf("%d labels", n)
	}
}

func TestLabelsOfOneSourceLeaveTheOtherWithItsAge(t *testing.T) {
	l := box(t)
	declaredAt := l.m.View().NowMS()
	l.advanceMS(5000)
	l.ok(labelled(model.Detected, "driver", "580", "rack", "r9"))
	if events := told(l, command.EventLabels); len(events) != 1 || events[0].Device != "box:gpu0" {
		t.Errorf("events %+v", events)
	}
	d := l.device("box:gpu0")
	if v, _ := d.Label("rack"); v != "r9" {
		t.Errorf("rack is %q: detected wins", v)
	}
	if len(d.Declared) != 2 || d.Declared[0] != (model.Label{Key: "rack", Value: "r3", UpdatedAtMS: declaredAt}) {
		t.Errorf("declared %+v", d.Declared)
	}
	if len(d.Detected) != 2 || d.Detected[1] != (model.Label{Key: "rack", Value: "r9", UpdatedAtMS: declaredAt + 5000}) {
		t.Errorf("detected %+v", d.Detected)
	}
	// What is no longer told is gone, and what it hid shows again.
	l.advanceMS(5000)
	l.ok(labelled(model.Detected, "driver", "581"))
	d = l.device("box:gpu0")
	if v, _ := d.Label("rack"); v != "r3" || len(d.Detected) != 1 || d.Declared[0].UpdatedAtMS != declaredAt {
		t.Errorf("rack is %q, detected %+v", v, d.Detected)
	}
	l.ok(labelled(model.Declared))
	if d = l.device("box:gpu0"); len(d.Declared) != 0 || len(d.Detected) != 1 {
		t.Errorf("%+v", d)
	}
	if n := len(l.device("box:gpu1").Declared); n != 0 {
		t.Errorf("a device that was not named has %d labels", n)
	}
}

func TestTheSameLabelsAgainOnlyGetYounger(t *testing.T) {
	l := box(t)
	l.ok(labelled(model.Detected, "a", "1"))
	l.advanceMS(7000)
	l.ok(labelled(model.Detected, "a", "1"))
	if age := l.device("box:gpu0").Detected[0].UpdatedAtMS; age != l.m.View().NowMS() {
		t.Errorf("updated at %d", age)
	}
	if len(l.events) != 0 {
		t.Errorf("events %+v: nothing changed", l.events)
	}
}

func TestALabelChangeSchedulesInTheSameEntry(t *testing.T) {
	l := box(t)
	l.ok(labelled(model.Detected, "vram_free", "1G"))
	j := l.queued(selecting("rack,vram_free>=40G"))
	l.wantJob(j.Number, model.JobQueued)
	l.ok(labelled(model.Detected, "vram_free", "80G"))
	l.wantJob(j.Number, model.JobAssigned)
	if placed := told(l, command.EventJobPlaced); len(placed) != 1 || placed[0].Job != j.Number {
		t.Errorf("events %+v", l.events)
	}
	// The room is gone again; a job that runs is not asked.
	l.ok(labelled(model.Detected, "vram_free", "0G"))
	l.wantJob(j.Number, model.JobAssigned)
}

func TestAVolatileLabelCountsAtPlacementAndNotAtSubmit(t *testing.T) {
	l := box(t)
	l.ok(labelled(model.Detected, "vram_free", "1G"))
	for _, text := range []string{"vram_free>=40G", "rack=r3,vram_free>=40G", "!vram_free,rack"} {
		if j := l.queued(selecting(text)); j.State != model.JobQueued {
			t.Errorf("%s is %s", text, j.State)
		}
	}
	l.refused(command.NoMatchingDevice, submit(selecting("rack=r4,vram_free>=40G"))) // the rest counts
	l.refused(command.NoMatchingDevice, submit(selecting("vram_total>=90G")))
}

func TestLabelsAreContact(t *testing.T) {
	l := box(t)
	l.advanceMS(minuteMS)
	l.ok(silent("box", "i1", 3000))
	j := l.queued(pinned("box:gpu1"))
	l.ok(labelled(model.Detected))
	l.wantDevice("box:gpu0", model.DeviceReady, model.ReasonNone)
	l.wantJob(j.Number, model.JobAssigned)
}

// fleetWords are a host's own words, each of box and its instance i1.
func fleetWords() []any {
	return []any{
		labelled(model.Declared, "rack", "r9"),
		&command.SheetPut{Host: "box", Instance: "i1", Sheets: []command.SheetText{{Body: "ask ann"}}},
		&command.DeviceFault{Device: "box:gpu0", Instance: "i1", Detail: "ECC"},
		&command.Recover{Host: "box", Instance: "i1", Proof: clean},
	}
}

func TestAFleetWordOfAnotherProcessOrEpochIsNotHeard(t *testing.T) {
	l := box(t)
	l.ok(register("box", "i2", spec("gpu0", 3600), spec("gpu1", 0)))
	for _, body := range fleetWords() {
		l.refused(command.StaleInstance, body)
	}
	l.refused(command.UnknownAgent, &command.LabelsReplace{Host: "far", Instance: "i1"})
	l.refused(command.UnknownAgent, &command.SheetPut{Host: "far", Instance: "i1"})
	l.refused(command.UnknownAgent, &command.Recover{Host: "far", Instance: "i1"})
	l = box(t)
	l.lead()
	before := l.m.Digest()
	for _, body := range append(fleetWords(), &command.DeviceRetire{Device: "box:gpu1"}, &command.DeviceFault{Device: "box:gpu0", Detail: "ECC"}) {
		if r := l.applyAs(l.term-1, encode(t, command.Request{}, body))[0]; r.Code != command.StaleEpoch {
			t.Errorf("%T: code %q", body, r.Code)
		}
	}
	if l.m.Digest() != before {
		t.Error("something changed")
	}
}

func TestARepeatedFleetWordHasOneEffect(t *testing.T) {
	for i, body := range append(fleetWords(), &command.DeviceRetire{Device: "box:gpu1"}) {
		t.Run(fmt.Sprintf("%T", body), func(t *testing.T) {
			l := box(t)
			raw := encode(t, keyed("k", "b", true), body)
			first := l.apply(raw)[0]
			if first.Code != command.OK || first.Repeat {
				t.Fatalf("%+v", first)
			}
			// In between its effect is undone by words of their own.
			l.ok(labelled(model.Declared, "rack", "r3"))
			l.ok(&command.SheetPut{Host: "box", Instance: "i1", Sheets: []command.SheetText{{Body: "ask bob"}}})
			l.one(&command.DeviceClear{Device: "box:gpu0"})
			l.ok(register("box", "i1", spec("gpu0", 3600, "rack", "r3", "vram", "80G"), spec("gpu1", 0)))
			l.advanceMS(1000)
			before := rowsOnly(l.m.View())
			if r := l.apply(raw)[0]; r.Code != command.OK || !r.Repeat {
				t.Errorf("%+v", r)
			}
			if rowsOnly(l.m.View()) != before || len(l.events) != 0 {
				t.Errorf("word %d had a second effect: %+v", i, l.events)
			}
		})
	}
}
