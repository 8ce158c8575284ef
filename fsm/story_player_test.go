package fsm

import (
	"errors"
	"fmt"
	"strings"

	"rcd/fsm/command"
)

// player plays one story against a machine, the way Raft, a combiner and the
// hosts' agents would.
type player struct {
	m       *Machine
	knows   uint32
	index   uint64
	term    uint64 // of Raft
	stamp   int64  // Unix ns, of the leader's clock
	passed  int64  // ms since the story began
	began   int64  // stamp at which the present leader's epoch began
	hosts   map[string]*storyHost
	entries []playedEntry
}

// storyHost is what an agent would say of its host.
type storyHost struct {
	machine       int
	boot, process int
	begun         map[string]uint64 // highest lease it has begun, by device name
}

func (h *storyHost) instance() string { return fmt.Sprint("process-", h.process) }

// playedEntry is an entry with the digest after it. A poisoned one breaks an
// invariant on purpose.
type playedEntry struct {
	logged
	poisoned bool
	digest   Digest
}

// asked is one command of a step.
type asked struct {
	request, also command.Request
	body          any
}

// lineError says in which line of a step something is wrong.
type lineError struct {
	offset int
	err    error
}

func (e *lineError) Error() string { return e.err.Error() }
func (e *lineError) Unwrap() error { return e.err }

func newPlayer() *player {
	p := &player{stamp: startOfTime * nsPerMS, hosts: map[string]*storyHost{}}
	p.m = p.newMachine()
	return p
}

func (p *player) newMachine() *Machine {
	return New(Options{PanicOnInvariant: true, Knows: p.knows})
}

// step carries out the lines of one step and returns what is told of it.
func (p *player) step(lines []string) (string, error) {
	how := manner{believed: p.term}
	var commands []asked
	for i, line := range lines {
		told, a, err := p.line(line, i == 0, &how)
		if err != nil {
			return "", &lineError{i, err}
		}
		if a == nil && len(lines) > 1 {
			return "", &lineError{i, errors.New("only commands travel together")}
		}
		if a == nil {
			return told, nil
		}
		commands = append(commands, *a)
	}
	return p.propose(how, commands)
}

// manner is how an entry is proposed.
type manner struct {
	believed uint64 // the term that its proposer believes in
	poisoned bool
}

// line understands one line: an act, whose story it returns, or a command.
func (p *player) line(line string, first bool, how *manner) (string, *asked, error) {
	w, err := readWords(line)
	if err != nil {
		return "", nil, err
	}
	if err := w.manner(first, how); err != nil {
		return "", nil, err
	}
	name := w.next()
	if act, ok := storyActs[name]; ok {
		told, err := act(p, w)
		return told, nil, errors.Join(err, w.end())
	}
	verb, ok := storyCommands[name]
	if !ok {
		return "", nil, fmt.Errorf("there is no verb %q", name)
	}
	a, err := verb(p, w)
	return "", &a, errors.Join(err, w.end())
}

// manner takes the words in front of a verb that say how it is proposed.
func (w *words) manner(first bool, how *manner) error {
	for w.peek() == "as-term" || w.peek() == "poisoned" {
		if !first {
			return errors.New("how an entry is proposed is said in its first line")
		}
		if w.next() == "poisoned" {
			how.poisoned = true
			continue
		}
		n, err := w.number()
		if err != nil {
			return err
		}
		how.believed = uint64(n)
	}
	return nil
}

// propose applies one entry and tells what came of it.
func (p *player) propose(how manner, commands []asked) (string, error) {
	before := p.m.View()
	results, events, err := p.apply(how, commands)
	if err != nil {
		return "", err
	}
	if err := p.lawTen(how, before, results); err != nil {
		return "", err
	}
	return tellEntry(commands, results, events, before, p.m.View()), nil
}

func (p *player) apply(how manner, commands []asked) ([]command.Result, []command.Event, error) {
	raw := make([][]byte, len(commands))
	for i, a := range commands {
		var err error
		if raw[i], err = command.EncodeBoth(a.request, a.also, a.body); err != nil {
			return nil, nil, err
		}
	}
	data, err := command.EncodeEntry(how.believed, p.stamp, raw)
	if err != nil {
		return nil, nil, err
	}
	p.index++
	e := playedEntry{logged: logged{p.index, p.term, data}, poisoned: how.poisoned}
	results, events, err := e.results(p.m)
	if err != nil {
		return nil, nil, err
	}
	e.digest = p.m.Digest()
	p.entries = append(p.entries, e)
	return results, events, errors.Join(p.m.Check(), p.m.CheckEntry())
}

func (e *playedEntry) applyTo(m *Machine) error {
	_, _, err := e.results(m)
	return err
}

func (e *playedEntry) results(m *Machine) ([]command.Result, []command.Event, error) {
	if e.poisoned {
		m.options.PanicOnInvariant = false
		m.afterCommands = func(*txn) { broken("a fault made for this story") }
		defer func() { m.options.PanicOnInvariant, m.afterCommands = true, nil }()
	}
	return m.Apply(e.index, e.term, e.data)
}

// lawTen holds an entry whose every command was refused against law 10: it has
// changed no row, and one that does not speak for the epoch no clock either.
func (p *player) lawTen(how manner, before *View, results []command.Result) error {
	for _, r := range results {
		if r.Code != command.OK && r.Message == "" {
			return fmt.Errorf("refused as %s without a sentence", r.Code)
		}
		if r.Code == command.OK || r.Code == command.NotPlaced || r.Code == command.AlreadyEnded {
			return nil
		}
	}
	after := p.m.View()
	stale := how.believed != p.term || p.term != before.Term() || how.poisoned
	if rowsOnly(before) != rowsOnly(after) || (stale && before.Digest() != after.Digest()) {
		return errors.New("a refused entry has changed something")
	}
	return nil
}

// host returns what the story knows of a host.
func (p *player) host(name string) (*storyHost, error) {
	h := p.hosts[name]
	if h == nil {
		return nil, fmt.Errorf("the story has no host %q", name)
	}
	return h, nil
}

// sinceEpochMS is the age of the epoch on the leader's clock.
func (p *player) sinceEpochMS() int64 { return (p.stamp - p.began) / nsPerMS }

// section indents the lines of one kind.
func section(name string, lines []string) string {
	var b strings.Builder
	for _, line := range lines {
		fmt.Fprintf(&b, "%-7s %s\n", name, line)
	}
	return b.String()
}
