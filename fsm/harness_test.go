package fsm

import (
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

// log drives a machine the way Raft and a combiner would.
type log struct {
	tb      testing.TB
	m       *Machine
	index   uint64
	term    uint64 // of Raft
	stamp   int64  // Unix ns
	entries []logged
	check   bool
	events  []command.Event // of the last entry
	load    load
}

// load says what a stream has carried, so that one that carried little does
// not pass for a proof.
type load struct {
	codes     map[command.Code]int
	events    map[command.EventKind]int
	states    map[model.JobState]int // of ended and present jobs in results
	inside    map[model.JobState]int // of jobs inside holds, as they ended
	mostQueue int
}

func (c *load) count(results []command.Result, events []command.Event, v *View) {
	if c.codes == nil {
		c.codes, c.events = map[command.Code]int{}, map[command.EventKind]int{}
		c.states, c.inside = map[model.JobState]int{}, map[model.JobState]int{}
	}
	for _, r := range results {
		c.codes[r.Code]++
		for _, j := range r.Jobs {
			c.states[j.State]++
		}
	}
	for _, e := range events {
		c.events[e.Kind]++
		if j := v.Job(e.Job); e.Kind == command.EventJobEnded && j != nil && j.Hold != 0 {
			c.inside[j.State]++
		}
	}
	c.mostQueue = max(c.mostQueue, v.Counts().Queued)
}

type logged struct {
	index, term uint64
	data        []byte
}

const startOfTime = int64(1_790_000_000_000) // Unix ms

func newLog(tb testing.TB) *log {
	l := &log{tb: tb, m: New(Options{PanicOnInvariant: true}), stamp: startOfTime * nsPerMS, check: true}
	return l
}

// began returns a log whose first epoch has begun.
func began(tb testing.TB) *log {
	l := newLog(tb)
	l.lead()
	return l
}

// lead begins the epoch of the next term.
func (l *log) lead() command.Result {
	l.tb.Helper()
	l.term++
	return l.one(&command.EpochBegin{Node: "c1", MedianMS: l.stamp / nsPerMS})
}

func (l *log) advanceMS(ms int64) { l.stamp += ms * nsPerMS }

func encode(tb testing.TB, r command.Request, body any) []byte {
	tb.Helper()
	data, err := command.Encode(r, body)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// one applies an entry of one command.
func (l *log) one(body any) command.Result {
	l.tb.Helper()
	return l.apply(encode(l.tb, command.Request{}, body))[0]
}

// many applies one entry of several commands.
func (l *log) many(bodies ...any) []command.Result {
	l.tb.Helper()
	raw := make([][]byte, len(bodies))
	for i, b := range bodies {
		raw[i] = encode(l.tb, command.Request{}, b)
	}
	return l.apply(raw...)
}

func (l *log) apply(commands ...[]byte) []command.Result {
	l.tb.Helper()
	return l.applyAs(l.term, commands...)
}

// applyAs applies an entry whose proposer believed in the given term.
func (l *log) applyAs(believed uint64, commands ...[]byte) []command.Result {
	l.tb.Helper()
	data, err := command.EncodeEntry(believed, l.stamp, commands)
	if err != nil {
		l.tb.Fatal(err)
	}
	l.index++
	l.entries = append(l.entries, logged{l.index, l.term, data})
	results, events, err := l.m.Apply(l.index, l.term, data)
	if err != nil {
		l.tb.Fatalf("apply index %d: %v", l.index, err)
	}
	if len(results) != len(commands) {
		l.tb.Fatalf("%d results for %d commands", len(results), len(commands))
	}
	l.events = events
	l.load.count(results, events, l.m.View())
	if l.check {
		if err := l.m.Check(); err != nil {
			l.tb.Fatalf("after index %d: %v", l.index, err)
		}
		if err := l.m.CheckEntry(); err != nil {
			l.tb.Fatalf("after index %d, entry only: %v", l.index, err)
		}
	}
	return results
}

// ok fails the test unless the command was accepted.
func (l *log) ok(body any) command.Result {
	l.tb.Helper()
	r := l.one(body)
	if r.Code != command.OK {
		l.tb.Fatalf("%T refused: %s: %s", body, r.Code, r.Message)
	}
	return r
}

// refused fails the test unless the command was refused with this code, with a
// sentence, and without any effect but the passing of time.
func (l *log) refused(want command.Code, body any) command.Result {
	l.tb.Helper()
	before := rowsOnly(l.m.View())
	r := l.one(body)
	if r.Code != want {
		l.tb.Fatalf("%T: code %q (%s), want %q", body, r.Code, r.Message, want)
	}
	if r.Message == "" {
		l.tb.Fatalf("%T refused as %s without a sentence", body, want)
	}
	if after := rowsOnly(l.m.View()); after != before {
		l.tb.Fatalf("%T was refused as %s and changed rows", body, want)
	}
	return r
}

// rowsOnly is the digest without the clocks.
func rowsOnly(v *View) Digest {
	d := v.digest
	d.sub(v.sealed.meta)
	return d
}

func spec(name string, ceiling int64, labels ...string) command.DeviceSpec {
	s := command.DeviceSpec{Name: name, MaxRuntimeS: ceiling}
	for i := 0; i+1 < len(labels); i += 2 {
		s.Declared = append(s.Declared, command.KV{Key: labels[i], Value: labels[i+1]})
	}
	return s
}

func register(host, instance string, devices ...command.DeviceSpec) *command.AgentRegister {
	return &command.AgentRegister{Host: host, MachineID: "m-" + host, BootID: "boot-1", Instance: instance, Devices: devices}
}

func pinned(device string) command.JobSpec {
	return command.JobSpec{Pinned: device, Command: []string{"true"}, Submitter: "ann"}
}

func selecting(selector string) command.JobSpec {
	return command.JobSpec{Selector: selector, Command: []string{"true"}, Submitter: "ann"}
}

func submit(specs ...command.JobSpec) *command.JobEnqueue { return &command.JobEnqueue{Jobs: specs} }

// queued submits one job and returns its row.
func (l *log) queued(s command.JobSpec) *model.Job {
	l.tb.Helper()
	return l.ok(submit(s)).Jobs[0]
}

func (l *log) job(n uint64) *model.Job { return l.m.View().Job(n) }

func (l *log) device(id string) *model.Device { return l.m.View().Device(id) }

func (l *log) wantJob(n uint64, state model.JobState) *model.Job {
	l.tb.Helper()
	j := l.job(n)
	if j == nil || j.State != state {
		l.tb.Fatalf("job %d is %+v, want %s", n, j, state)
	}
	return j
}

func (l *log) wantDevice(id string, state model.DeviceState, reason model.Reason) *model.Device {
	l.tb.Helper()
	d := l.device(id)
	if d == nil || d.State != state || d.Reason != reason {
		l.tb.Fatalf("device %s is %+v, want %s %s", id, d, state, reason)
	}
	return d
}

func ref(j *model.Job) command.JobRef { return command.JobRef{Job: j.Number, Lease: j.Lease} }

func started(j *model.Job, instance string) *command.JobStart {
	return &command.JobStart{JobRef: ref(j), Host: j.Host, Instance: instance}
}

func exited(j *model.Job, instance string, code int32) *command.JobFinish {
	return &command.JobFinish{JobRef: ref(j), Host: j.Host, Instance: instance, ExitCode: &code, OutputKnown: true, OutputLength: 5, OutputDigest: []byte("digest")}
}
