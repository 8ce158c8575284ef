package sim

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
)

var (
	seedsFlag = flag.Int("sim.seeds", 2000, "how many seeds to run")
	seedFlag  = flag.Uint64("sim.seed", 0, "run this seed alone")
	stepsFlag = flag.Int("sim.steps", 80, "steps of each storm")
	firstFlag = flag.Uint64("sim.first", 1, "the first seed")
	failFast  = flag.Bool("sim.failfast", false, "stop at the first seed that fails")
	verbose   = flag.Bool("sim.v", false, "print the transcript of a single seed")
)

// TestASeedReplaysItself compares two transcripts of one seed.
func TestASeedReplaysItself(t *testing.T) {
	for seed := uint64(1); seed <= 3; seed++ {
		var out [2]bytes.Buffer
		for i := range out {
			if _, err := Run(Options{Seed: seed, Steps: 40, Out: &out[i]}); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if out[0].Len() == 0 || !bytes.Equal(out[0].Bytes(), out[1].Bytes()) {
			t.Errorf("seed %d: two runs differ", seed)
		}
	}
}

// minLoad is the number of seeds from which on everything that a storm is for
// must have happened often enough.
const minLoad = 1500

// TestMain lets the heap of these short-lived worlds grow: they are garbage all
// at once.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// TestTheLawsHoldInEveryStorm runs the seeds. Each is one goroutine of its own
// from beginning to end.
func TestTheLawsHoldInEveryStorm(t *testing.T) {
	if *seedFlag != 0 {
		o := Options{Seed: *seedFlag, Steps: *stepsFlag}
		if *verbose {
			o.Out = os.Stdout
		}
		report, err := Run(o)
		t.Logf("%d entries, %d events, %v of virtual time: %v", report.Entries, report.Events, report.Virtual, report.Counts)
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	seeds := *seedsFlag
	if testing.Short() {
		seeds /= 10
	}
	sum := sweepSeeds(t, *firstFlag, seeds, NoQuirk, func(seed uint64, err error) bool {
		t.Errorf("seed %d: %v\nreplay: %s", seed, err, replay(seed, *stepsFlag))
		return *failFast
	})
	t.Logf("%d seeds: %d entries, %d processes, %d jobs acknowledged: %v", seeds, sum.Entries, sum.Counts.Processes, sum.Counts.Acked, sum.Counts)
	if rare := sum.Counts.Rare(int64(seeds / 300)); len(rare) > 0 && seeds >= minLoad && !t.Failed() {
		t.Errorf("these storms did not carry their load: %v happened in fewer than one of 300", rare)
	}
}

func replay(seed uint64, steps int) string {
	return fmt.Sprintf("go test ./jepsen/sim -run TestTheLawsHoldInEveryStorm -sim.seed=%d -sim.steps=%d -sim.v", seed, steps)
}

// sweepSeeds runs seeds on all cores until failed returns true and returns the
// sum of what the good runs went through.
func sweepSeeds(t *testing.T, first uint64, seeds int, quirk Quirk, failed func(seed uint64, err error) (stop bool)) Report {
	t.Helper()
	var (
		next atomic.Uint64
		stop atomic.Bool
		mu   sync.Mutex // guards sum and calls of failed
		sum  Report
		wait sync.WaitGroup
	)
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for !stop.Load() {
				i := next.Add(1) - 1
				if i >= uint64(seeds) {
					return
				}
				report, err := Run(Options{Seed: first + i, Steps: *stepsFlag, Quirk: quirk})
				mu.Lock()
				sum.Entries += report.Entries
				sum.Events += report.Events
				sum.Virtual += report.Virtual
				sum.Counts.Add(report.Counts)
				if err != nil && failed(first+i, err) {
					stop.Store(true)
				}
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return sum
}
