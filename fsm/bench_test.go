package fsm

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"rcd/fsm/command"
)

// pools is the number of distinct selectors among the queued jobs.
const pools = 50

func benchDevice(i int) string {
	const perHost = 8
	return fmt.Sprintf("h%05d:g%d", i/perHost, i%perHost)
}

func benchJob(i, devices int) command.JobSpec {
	if i%2 == 0 {
		return pinned(benchDevice(i / 2 % devices))
	}
	return selecting(fmt.Sprintf("pool=p%d,vram>=40G", i/2%pools))
}

// loaded returns a log with this many devices, all busy, and this many queued
// jobs, half of them with one of 50 selectors.
func loaded(b *testing.B, devices, jobs int) *log {
	b.Helper()
	l := began(b)
	l.check = false
	l.m.work.settings.MaxQueued = 1 << 40 // what a batch adds comes on top
	const perHost = 8
	for h := 0; h*perHost < devices; h++ {
		r := register(fmt.Sprintf("h%05d", h), "i1")
		for d := range min(perHost, devices-h*perHost) {
			r.Devices = append(r.Devices, spec(fmt.Sprint("g", d), 0, "pool", fmt.Sprint("p", (h*perHost+d)%pools), "vram", "80G", "vendor", "nvidia"))
		}
		l.ok(r)
	}
	fill(l, devices, func(i int) command.JobSpec { return pinned(benchDevice(i)) })
	fill(l, jobs, func(i int) command.JobSpec { return benchJob(i, devices) })
	if c := l.m.View().Counts(); c.Queued != jobs || c.Active != devices {
		b.Fatalf("%+v", c)
	}
	return l
}

// fill submits n jobs.
func fill(l *log, n int, s func(int) command.JobSpec) {
	l.tb.Helper()
	var body command.JobEnqueue
	for i := range n {
		if body.Jobs = append(body.Jobs, s(i)); len(body.Jobs) == 500 || i == n-1 {
			l.ok(&body)
			body.Jobs = nil
		}
	}
	l.entries = nil
}

// batch bounds how far the state strays from the stated size: the entries of a
// batch are measured, then what they did is undone.
const batch = 64

// eachSize measures one Apply of an entry of one command at every size. next
// returns the bodies of up to n such commands, none of which depends on the
// outcome of another; undo brings the state back to its size. Both, and the
// encoding, stay outside the measure: it is the state machine's goroutine that
// all proposers share, and encoding happens elsewhere. ns/fastest is the mean of
// the fastest batch: what a machine that others use too allows to compare.
func eachSize(b *testing.B, next func(l *log, n int) []any, undo func(*log, []command.Result)) {
	for _, devices := range []int{100, 1_000, 10_000} {
		for _, jobs := range []int{1_000, 10_000, 100_000} {
			load := sync.OnceValue(func() *log { return loaded(b, devices, jobs) })
			b.Run(fmt.Sprintf("devices=%d/queued=%d", devices, jobs), func(b *testing.B) {
				l := load()
				fastest := time.Hour
				b.ReportAllocs()
				b.ResetTimer()
				for done := 0; done < b.N; {
					b.StopTimer()
					entries := alone(l, next(l, min(batch, b.N-done)))
					results := make([]command.Result, 0, len(entries))
					b.StartTimer()
					start := time.Now()
					for _, data := range entries {
						l.index++
						r, _, err := l.m.Apply(l.index, l.term, data)
						if err != nil || r[0].Code != command.OK {
							b.Fatalf("%v: %+v", err, r)
						}
						results = append(results, r[0])
					}
					b.StopTimer()
					fastest = min(fastest, time.Since(start)/time.Duration(len(entries)))
					done += len(entries)
					undo(l, results)
					if c := l.m.View().Counts(); c.Queued != jobs {
						b.Fatalf("%+v", c)
					}
				}
				b.ReportMetric(float64(fastest), "ns/fastest")
			})
		}
	}
}

// alone encodes each body as the only command of an entry.
func alone(l *log, bodies []any) [][]byte {
	l.tb.Helper()
	entries := make([][]byte, len(bodies))
	for i, body := range bodies {
		l.advanceMS(1)
		data, err := command.EncodeEntry(l.term, l.stamp, [][]byte{encode(l.tb, command.Request{}, body)})
		if err != nil {
			l.tb.Fatal(err)
		}
		entries[i] = data
	}
	return entries
}

// BenchmarkEnqueueQueues is one submit that waits.
func BenchmarkEnqueueQueues(b *testing.B) {
	i := 0
	eachSize(b, func(l *log, n int) (bodies []any) {
		for range n {
			i++
			bodies = append(bodies, submit(benchJob(i, 100)))
		}
		return bodies
	}, func(l *log, results []command.Result) {
		var kills []any
		for _, r := range results {
			kills = append(kills, &command.JobKill{Job: r.Jobs[0].Number, By: "ann"})
		}
		l.many(kills...)
		l.entries = nil
	})
}

// BenchmarkFinishPlaces is one finish whose device goes to the next in line.
// The devices lie far apart, as those of a fleet do.
func BenchmarkFinishPlaces(b *testing.B) {
	at := 0
	eachSize(b, func(l *log, n int) (bodies []any) {
		devices := l.m.View().Counts().Devices
		for range min(n, devices/2) {
			at += 7919 // a prime: every device comes before one comes again
			lease := l.m.View().Lease(l.device(benchDevice(at % devices)).Lease)
			bodies = append(bodies, exited(l.job(lease.Jobs[0]), "i1", 0))
		}
		return bodies
	}, func(l *log, results []command.Result) {
		var body command.JobEnqueue
		for _, r := range results {
			j := l.job(l.m.View().Lease(l.device(r.Jobs[0].Device()).Lease).Jobs[0])
			s := selecting(j.Selector)
			if j.Pinned != "" {
				s = pinned(j.Pinned)
			}
			body.Jobs = append(body.Jobs, s)
		}
		l.ok(&body)
		l.entries = nil
	})
}

// BenchmarkEnqueuePlaces is one submit that finds a free device, of as many as
// a batch takes.
func BenchmarkEnqueuePlaces(b *testing.B) {
	eachSize(b, func(l *log, n int) (bodies []any) {
		if l.m.View().Agent("free") == nil {
			r := register("free", "i1")
			for i := range batch {
				r.Devices = append(r.Devices, spec(fmt.Sprint("g", i), 0, "tier", "gold"))
			}
			l.ok(r)
		}
		for range n {
			bodies = append(bodies, submit(selecting("tier=gold")))
		}
		return bodies
	}, func(l *log, results []command.Result) {
		for _, r := range results {
			l.ok(exited(r.Jobs[0], "i1", 0))
		}
		l.entries = nil
	})
}
