package fsm

import (
	"errors"
	"fmt"

	"rcd/fsm/command"
	"rcd/model"
)

// tellRegister is the first word of an agent process. About a host that the
// story has heard of before it says what is new: restarted, rebooted, same
// process or other machine.
func tellRegister(p *player, w *words) (asked, error) {
	name := w.next()
	h, err := p.arrives(name, w)
	if err != nil {
		return asked{}, err
	}
	b := &command.AgentRegister{
		Host: name, MachineID: fmt.Sprint("machine-", h.machine), BootID: fmt.Sprint("boot-", h.boot), Instance: h.instance(),
		Proof: proofOption(w), RequireManualClear: w.flag("manual clear"),
	}
	if b.Jobs, err = supervised(p, w); err != nil {
		return asked{}, err
	}
	begun, err := begunOption(w)
	if err != nil {
		return asked{}, err
	}
	lost, keep := w.flag("records lost"), w.flag("probe failed")
	for len(w.rest) > 0 {
		d := command.DeviceSpec{Name: w.next(), KeepDetected: keep}
		if d.Declared, d.Detected, d.MaxRuntimeS, err = w.labels(); err != nil {
			return asked{}, err
		}
		if w.skip(",") && len(w.rest) == 0 {
			return asked{}, errors.New("a device is missing after the comma")
		}
		if lost {
			delete(h.begun, d.Name)
		}
		h.begun[d.Name] = max(h.begun[d.Name], begun)
		d.Begun = h.begun[d.Name]
		b.Devices = append(b.Devices, d)
	}
	return asked{body: b}, nil
}

// arrives returns what a host is as of this registration.
func (p *player) arrives(name string, w *words) (*storyHost, error) {
	h := p.hosts[name]
	again, boot, same, other := w.flag("restarted"), w.flag("rebooted"), w.flag("same process"), w.flag("other machine")
	switch {
	case h == nil && (again || boot || same || other):
		return nil, fmt.Errorf("the story has not heard of %q before", name)
	case h == nil:
		h = &storyHost{machine: 1, boot: 1, process: 1, begun: map[string]uint64{}}
		p.hosts[name] = h
	case other:
		stranger := &storyHost{machine: h.machine + 1, boot: 1, process: h.process + 1, begun: map[string]uint64{}}
		if p.m.View().Agent(name) == nil { // the name is free: it will be known
			p.hosts[name] = stranger
		}
		return stranger, nil
	case boot:
		h.boot++
		h.process++
	case again:
		h.process++
	case !same:
		return nil, fmt.Errorf("the story knows %q; say (restarted), (rebooted), (same process) or (other machine)", name)
	}
	return h, nil
}

// proofOption takes what the host can say about earlier processes.
func proofOption(w *words) command.Proof {
	proof := command.Proof{Isolated: w.flag("isolated"), SurvivorsChecked: w.flag("checked")}
	if rest, ok := w.option("survivor"); ok {
		proof.SurvivorsChecked, proof.SurvivorsFound = true, true
		for _, word := range rest {
			proof.Detail += word
		}
	}
	return proof
}

// supervised takes the jobs that the agent names: "supervises j-1", each under
// its latest lease.
func supervised(p *player, w *words) ([]command.JobRef, error) {
	var refs []command.JobRef
	for {
		word, ok := w.value("supervises")
		if !ok {
			return refs, nil
		}
		n, ok := model.ParseJobID(word)
		j := p.m.View().Job(n)
		if !ok || j == nil {
			return nil, fmt.Errorf("there is no job %q to supervise", word)
		}
		refs = append(refs, ref(j))
	}
}

// begunOption takes "begun l-1": the host began it and nobody has heard so.
func begunOption(w *words) (uint64, error) {
	word, ok := w.value("begun")
	if !ok {
		return 0, nil
	}
	return parseLease(word)
}

func tellHello(p *player, w *words) (asked, error) {
	name := w.next()
	h, err := p.host(name)
	if err != nil {
		return asked{}, err
	}
	b := &command.Recover{Host: name, Instance: h.instance(), Proof: proofOption(w), RequireManualClear: w.flag("manual clear")}
	if process := processOption(w); process != "" {
		b.Instance = process
	}
	b.Jobs, err = supervised(p, w)
	return asked{body: b}, err
}

func tellLabels(p *player, w *words) (asked, error) {
	name := w.next()
	h, err := p.host(name)
	if err != nil {
		return asked{}, err
	}
	b := &command.LabelsReplace{Host: name, Instance: h.instance()}
	switch source := w.next(); source {
	case "detected":
		b.Source = model.Detected
	case "declared":
	default:
		return asked{}, fmt.Errorf("labels are declared or detected, not %q", source)
	}
	for len(w.rest) > 0 {
		device := w.next()
		set, _, _, err := w.labels()
		if err != nil {
			return asked{}, err
		}
		w.skip(",")
		b.Sets = append(b.Sets, command.DeviceLabels{Name: device, Labels: set})
	}
	return asked{body: b}, nil
}

func tellSheet(p *player, w *words) (asked, error) {
	name := w.next()
	h, err := p.host(name)
	if err != nil {
		return asked{}, err
	}
	sheet := command.SheetText{}
	if len(w.rest) > 1 {
		sheet.Name = w.next()
	}
	sheet.Body = w.next()
	return asked{body: &command.SheetPut{Host: name, Instance: h.instance(), Sheets: []command.SheetText{sheet}}}, nil
}

func tellFault(p *player, w *words) (asked, error) {
	b := &command.DeviceFault{Device: w.next(), Detail: w.next()}
	if w.flag("from its agent") {
		name, _ := model.SplitDeviceID(b.Device)
		h, err := p.host(name)
		if err != nil {
			return asked{}, err
		}
		b.Instance = h.instance()
	}
	return asked{body: b}, nil
}

func tellClear(_ *player, w *words) (asked, error) {
	return asked{body: &command.DeviceClear{Device: w.next()}}, nil
}

func tellRetire(_ *player, w *words) (asked, error) {
	if w.skip("host") {
		return asked{body: &command.DeviceRetire{Host: w.next()}}, nil
	}
	return asked{body: &command.DeviceRetire{Device: w.next()}}, nil
}
