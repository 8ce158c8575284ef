package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"rcd/fsm/command"
	"rcd/model"
)

// storyCommands are the verbs that make a command of an entry.
//
//	register box gpu0 ceiling=1h vram=80G, gpu1 detected:vram=40G (restarted)
//	hello box (checked, supervises j-1)
//	labels box detected gpu0 vram=80G, gpu1 vram=40G
//	sheet box gpu0 "text"               sheet box "text"
//	fault box:gpu0 "XID 79" (from its agent)
//	clear box:gpu0      retire box:gpu0      retire host box
//	submit ann box:gpu0 runtime=2h priority=3 key=k1 -- train, vram>=40G -- eval
//	allocate ann box:gpu0 -- probe
//	start j-1           finish j-1 exit 0    kill j-1 by bob (admin, detached)
//	release j-1 by ann (admin, detached, force)        extend j-1 to 4h by ann
//	submit ann box:gpu0 hold runtime=2h session=1m      submit ann inside j-1 -- test
//	sweep silent box 5m detached, silent far 30s, heard near, unnamed l-1 5m, unordered j-2
//	sweep client j-1 silent 30s, client j-2 heard
//	set aging_ms=30m    prune 100            schedule
//	member c1 knows 1   member c1 leaves     raise to 2
//	checkpoint at 4 of 3 c1=good c2=good c3=bad
//
// In front of a verb, "as-term 1" makes it the proposal of somebody who
// believes in that term, and "poisoned" makes its entry break an invariant.
var storyCommands map[string]func(*player, *words) (asked, error)

// storyActs are the verbs that make no command of their own.
//
//	knows 2             the build knows that feature level; comes first
//	lead c2 (clock 1h ahead)            the next term begins, led by c2
//	elect               Raft has a leader of the next term that has not begun
//	pass 5m             time goes by
//	snapshot and restore                go on from a snapshot of the state
//	devices  jobs  queue  clock  withheld  job j-1  returns box:gpu0
//	matching vram>=40G  history box:gpu0  sheet-of box:gpu0  why j-3
var storyActs map[string]func(*player, *words) (string, error)

func init() { // the tables and their verbs refer to each other
	storyCommands = map[string]func(*player, *words) (asked, error){
		"register": tellRegister, "hello": tellHello, "labels": tellLabels, "sheet": tellSheet,
		"fault": tellFault, "clear": tellClear, "retire": tellRetire,
		"submit": tellSubmit, "allocate": tellAllocate, "start": tellStart, "finish": tellFinish,
		"kill": tellKill, "release": tellRelease, "extend": tellExtend,
		"sweep": tellSweep, "set": tellSet, "prune": tellPrune, "schedule": tellSchedule,
		"member": tellMember, "raise": tellRaise, "checkpoint": tellCheckpoint,
	}
	storyActs = map[string]func(*player, *words) (string, error){
		"knows": actKnows, "lead": actLead, "elect": actElect, "pass": actPass, "snapshot": actSnapshot,
		"devices": actDevices, "jobs": actJobs, "queue": actQueue, "clock": actClock, "withheld": actWithheld,
		"job": actJob, "returns": actReturns, "matching": actMatching, "history": actHistory, "sheet-of": actSheetOf,
		"why": actWhy,
	}
}

func actKnows(p *player, w *words) (string, error) {
	n, err := w.number()
	if p.index != 0 {
		return "", errors.New("what the build knows is said first")
	}
	p.knows = uint32(n)
	p.m = p.newMachine()
	return section("build", []string{fmt.Sprintf("knows feature level %d", n)}), err
}

// actLead begins the epoch of the next term. The clock of its leader may be
// another than that of the one before. With "in term 1" somebody tries to begin
// a term that is not Raft's present one.
func actLead(p *player, w *words) (string, error) {
	node := w.next()
	if err := p.otherClock(w); err != nil {
		return "", err
	}
	how := manner{believed: p.term + 1}
	if word, ok := w.value("in term"); ok {
		n, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return "", err
		}
		how.believed = n
	} else {
		p.term++
		p.began = p.stamp
	}
	return p.propose(how, []asked{{body: &command.EpochBegin{Node: node, MedianMS: p.stamp / nsPerMS}}})
}

// otherClock takes "clock 1h ahead" or "clock 1h behind".
func (p *player) otherClock(w *words) error {
	rest, ok := w.option("clock")
	if !ok {
		return nil
	}
	if len(rest) != 2 || (rest[1] != "ahead" && rest[1] != "behind") {
		return errors.New("a clock is so much ahead or behind")
	}
	ms, err := parseMS(rest[0])
	if rest[1] == "behind" {
		ms = -ms
	}
	p.stamp += ms * nsPerMS
	return err
}

func actElect(p *player, _ *words) (string, error) {
	p.term++
	p.began = p.stamp
	return section("raft", []string{fmt.Sprintf("has a leader in term %d, which has not begun", p.term)}), nil
}

func actPass(p *player, w *words) (string, error) {
	ms, err := w.ms()
	p.stamp += ms * nsPerMS
	p.passed += ms
	return section("clock", []string{span(p.passed) + " since the story began"}), err
}

func actSnapshot(p *player, w *words) (string, error) {
	w.expect("and")
	w.expect("restore")
	var b bytes.Buffer
	if _, err := p.m.Snapshot().WriteTo(&b); err != nil {
		return "", err
	}
	m := p.newMachine()
	if err := m.Restore(&b); err != nil {
		return "", err
	}
	if m.Digest() != p.m.Digest() {
		return "", fmt.Errorf("the restored state is %s, it was %s", m.View(), p.m.View())
	}
	p.m = m
	return section("answer", []string{"a machine restored from a snapshot of index " + fmt.Sprint(m.Index()) + " has the same digest and goes on"}), m.Check()
}

func tellSweep(p *player, w *words) (asked, error) {
	b := &command.Sweep{EpochMS: p.sinceEpochMS()}
	if word, ok := w.value("epoch"); ok {
		ms, err := parseMS(word)
		if err != nil {
			return asked{}, err
		}
		b.EpochMS = ms
	}
	process := processOption(w)
	for len(w.rest) > 0 {
		if err := p.evidence(w, b, process); err != nil {
			return asked{}, err
		}
		if len(w.rest) > 0 {
			w.expect(",")
		}
	}
	return asked{body: b}, nil
}

// evidence reads one thing that a sweep says.
func (p *player) evidence(w *words, b *command.Sweep, process string) error {
	switch kind := w.next(); kind {
	case "silent", "heard":
		name := w.next()
		h, err := p.host(name)
		if err != nil {
			return err
		}
		instance := h.instance()
		if process != "" {
			instance = process
		}
		if kind == "heard" {
			b.Heard = append(b.Heard, command.AgentHeard{Host: name, Instance: instance})
			return nil
		}
		s := command.AgentSilence{Host: name, Instance: instance}
		if s.SilenceMS, err = w.ms(); err != nil {
			return err
		}
		if w.skip("detached") {
			s.DetachedMS = s.SilenceMS
		}
		b.Silent = append(b.Silent, s)
		return nil
	case "unnamed":
		lease, err := parseLease(w.next())
		if err != nil {
			return err
		}
		ms, err := w.ms()
		b.Unnamed = append(b.Unnamed, command.LeaseUnnamed{Lease: lease, UnnamedMS: ms})
		return err
	case "unordered":
		j, err := w.job(p)
		if err == nil {
			b.Unordered = append(b.Unordered, j.Number)
		}
		return err
	case "client":
		j, err := w.job(p)
		if err != nil {
			return err
		}
		s := command.SessionSilence{Job: j.Number}
		if !w.skip("heard") {
			w.expect("silent")
			s.SilenceMS, err = w.ms()
		}
		b.Sessions = append(b.Sessions, s)
		return err
	default:
		return fmt.Errorf("a sweep says silent, heard, unnamed, unordered or client, not %q", kind)
	}
}

func tellSet(_ *player, w *words) (asked, error) {
	b := &command.ConfigSet{}
	for len(w.rest) > 0 {
		name, value, ok := strings.Cut(w.next(), "=")
		if !ok {
			return asked{}, fmt.Errorf("%q is not name=value", name)
		}
		n, err := settingValue(value)
		if err != nil {
			return asked{}, err
		}
		b.Settings = append(b.Settings, command.Setting{Name: name, Value: n})
	}
	return asked{body: b}, nil
}

// settingValue reads a number, or a duration in milliseconds.
func settingValue(word string) (int64, error) {
	w := &words{rest: []string{word}}
	if n, err := w.number(); err == nil {
		return n, nil
	}
	return parseMS(word)
}

func tellPrune(_ *player, w *words) (asked, error) {
	n, err := w.number()
	return asked{body: &command.JobPrune{Limit: uint32(n)}}, err
}

func tellSchedule(*player, *words) (asked, error) { return asked{body: &command.Schedule{}}, nil }

func tellMember(_ *player, w *words) (asked, error) {
	id := w.next()
	if w.skip("leaves") {
		return asked{body: &command.MemberRemove{ID: id}}, nil
	}
	w.expect("knows")
	n, err := w.number()
	return asked{body: &command.MemberPut{ID: id, Incarnation: id + "-disk", Supports: uint32(n), Build: "test"}}, err
}

func tellRaise(_ *player, w *words) (asked, error) {
	w.expect("to")
	n, err := w.number()
	return asked{body: &command.FeatureRaise{Level: uint32(n)}}, err
}

// tellCheckpoint reads the voters' digests, which a story gives as names.
func tellCheckpoint(_ *player, w *words) (asked, error) {
	w.expect("at")
	index, err := w.number()
	if err != nil {
		return asked{}, err
	}
	w.expect("of")
	voters, err := w.number()
	if err != nil {
		return asked{}, err
	}
	b := &command.Checkpoint{Index: uint64(index), Voters: uint32(voters)}
	for len(w.rest) > 0 {
		node, name, ok := strings.Cut(w.next(), "=")
		if !ok {
			return asked{}, fmt.Errorf("%q is not node=digest", node)
		}
		sum := rowSum(tableMeta, nil, []byte(name)).Bytes()
		b.Reports = append(b.Reports, command.DigestReport{Node: node, Digest: sum[:]})
	}
	return asked{body: b}, nil
}

// processOption takes "from process 1": the word of an earlier agent process.
func processOption(w *words) string {
	n, ok := w.value("from process")
	if !ok {
		return ""
	}
	return "process-" + n
}

// pinnedTarget reports whether a word names a device and not a selector.
func pinnedTarget(word string) bool {
	host, name := model.SplitDeviceID(word)
	return host != "" && !strings.ContainsAny(host+name, "=<>!, ")
}
