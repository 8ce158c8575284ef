package sim

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"time"
)

// ErrLaw means that a run broke a law, or that the code under test panicked.
var ErrLaw = errors.New("a law is broken")

// Options of a run.
type Options struct {
	Seed  uint64
	Steps int       // of the storm; at least 1
	Out   io.Writer // readable transcript, nil for none
	Quirk Quirk     // a deliberate fault
	// Script replaces the storm: a scenario of its own on a quiet world.
	Script func(*World)
}

// Report says what a run has gone through.
type Report struct {
	Entries int
	Events  int
	Virtual time.Duration
	Counts  Counts
}

// World is one run: everything in it, and the truth.
type World struct {
	options Options
	rng     *rand.Rand
	now     time.Duration
	line    timeline
	events  int

	log      *raftLog
	nodes    []*node
	epochs   []*epoch // that somebody still believes in
	hosts    []*host
	clients  *clients
	operator *operator
	witness  *witness
	counts   Counts

	slowAttach time.Duration // after the admission, for scripts
	slowUntil  time.Duration // until then the network is bad
	// calm: no more faults, everything has to come to its end.
	calm bool
}

// violation is what fail panics with.
type violation string

// fail ends the run.
func (w *World) fail(format string, args ...any) {
	panic(violation(fmt.Sprintf(format, args...)))
}

// note writes a line of the transcript.
func (w *World) note(format string, args ...any) {
	if w.options.Out != nil {
		fmt.Fprintf(w.options.Out, "%10.3fs  %s\n", w.now.Seconds(), fmt.Sprintf(format, args...))
	}
}

// Run makes one run and returns what it went through. The error wraps ErrLaw
// and says which law broke and when.
func Run(o Options) (report Report, err error) {
	w := newWorld(o)
	defer func() {
		report = Report{Entries: len(w.log.committed), Events: w.events, Virtual: w.now, Counts: w.counts}
		switch r := recover().(type) {
		case nil:
		case violation:
			err = fmt.Errorf("%w at %.3fs: %s", ErrLaw, w.now.Seconds(), string(r))
		default:
			err = fmt.Errorf("%w at %.3fs: panic: %v\n%s", ErrLaw, w.now.Seconds(), r, debug.Stack())
		}
		if err != nil {
			w.note("FAILED: %v", err)
		}
	}()
	w.boot()
	if o.Script != nil {
		o.Script(w)
	} else {
		w.storm(max(o.Steps, 1))
	}
	w.settle()
	return report, nil
}

func newWorld(o Options) *World {
	w := &World{options: o, rng: rand.New(rand.NewPCG(o.Seed, 0x5eed))}
	w.log = &raftLog{w: w}
	w.witness = newWitness(w)
	for i := range 3 {
		w.nodes = append(w.nodes, w.newNode(i))
	}
	w.clients = &clients{w: w}
	w.operator = &operator{w: w, since: map[string]time.Duration{}}
	for i := range 2 + w.rng.IntN(3) {
		w.hosts = append(w.hosts, newHost(w, i))
	}
	return w
}

// boot elects the first leader, sets the bounds of this run and lets the hosts
// in.
func (w *World) boot() {
	w.log.elect(w.nodes[w.rng.IntN(len(w.nodes))])
	w.Run(100 * time.Millisecond)
	w.clients.configure()
	for _, h := range w.hosts {
		h.boot()
	}
	w.after(time.Second, w.operator.round)
	w.Run(5 * time.Second)
}

// after makes something happen later.
func (w *World) after(d time.Duration, do func()) { w.line.push(w.now+max(d, 0), do) }

// Run lets virtual time pass.
func (w *World) Run(d time.Duration) {
	until := w.now + d
	for len(w.line.heap) > 0 && w.line.heap[0].at <= until {
		e := w.line.pop()
		w.now = e.at
		w.events++
		e.do()
	}
	w.now = until
}

// chance is true in percent of a hundred cases, and never in the calm.
func (w *World) chance(percent float64) bool {
	return w.rng.Float64()*100 < percent && !w.calm
}

// between draws a duration, short ones as likely as long ones in their order
// of magnitude being left to the caller.
func (w *World) between(low, high time.Duration) time.Duration {
	return low + time.Duration(w.rng.Int64N(int64(high-low)+1))
}
