package fsm

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"rcd/fsm/command"
)

// loaded returns a log with this many devices, all busy, and this many queued
// jobs, half of them with one of 50 selectors.
func loaded(b *testing.B, devices, jobs int) *log {
	b.Helper()
	l := began(b)
	l.check = false
	const perHost = 8
	for h := 0; h*perHost < devices; h++ {
		r := register(fmt.Sprintf("h%05d", h), "i1")
		for d := range min(perHost, devices-h*perHost) {
			r.Devices = append(r.Devices, spec(fmt.Sprint("g", d), 0, "rack", fmt.Sprint("r", h%50), "vram", "80G", "vendor", "nvidia"))
		}
		l.ok(r)
	}
	fill := func(n int, s func(int) command.JobSpec) {
		var body command.JobEnqueue
		for i := range n {
			if body.Jobs = append(body.Jobs, s(i)); len(body.Jobs) == 500 || i == n-1 {
				l.ok(&body)
				body.Jobs = nil
			}
		}
	}
	device := func(i int) string { return fmt.Sprintf("h%05d:g%d", i%devices/perHost, i%devices%perHost) }
	fill(devices, func(i int) command.JobSpec { return pinned(device(i)) })
	racks := min(50, (devices+perHost-1)/perHost)
	fill(jobs, func(i int) command.JobSpec {
		if i%2 == 0 {
			return pinned(device(i / 2))
		}
		return selecting(fmt.Sprintf("rack=r%d,vram>=40G", i/2%racks))
	})
	if c := l.m.View().Counts(); c.Queued != jobs || c.Active != devices {
		b.Fatalf("%+v", c)
	}
	l.entries = nil
	return l
}

func eachSize(b *testing.B, run func(*testing.B, *log)) {
	for _, devices := range []int{100, 1_000, 10_000} {
		for _, jobs := range []int{1_000, 10_000, 100_000} {
			b.Run(fmt.Sprintf("devices=%d/queued=%d", devices, jobs), func(b *testing.B) {
				l := loaded(b, devices, jobs)
				b.ReportAllocs()
				b.ResetTimer()
				run(b, l)
			})
		}
	}
}

// BenchmarkEnqueueQueues is one submit that waits, alone in its entry.
func BenchmarkEnqueueQueues(b *testing.B) {
	eachSize(b, func(b *testing.B, l *log) {
		l.m.work.settings.MaxQueued = 1 << 40
		for i := 0; b.Loop(); i++ {
			if i%2 == 0 {
				l.ok(submit(selecting("rack=r1,vram>=40G")))
			} else {
				l.ok(submit(pinned("h00000:g1")))
			}
			l.entries = l.entries[:0]
		}
	})
}

// BenchmarkFinishPlaces is one finish whose device goes to the next in line.
func BenchmarkFinishPlaces(b *testing.B) {
	eachSize(b, func(b *testing.B, l *log) {
		l.m.work.settings.MaxQueued = 1 << 40
		device := l.m.View().Active()[0].Device()
		for b.Loop() {
			b.StopTimer()
			next := l.m.View().Lease(l.device(device).Lease).Jobs[0]
			l.ok(submit(pinned(device)))
			l.entries = l.entries[:0]
			f := exited(l.job(next), "i1", 0)
			b.StartTimer()
			l.ok(f)
		}
	})
}

// BenchmarkEnqueuePlaces is one submit that finds a free device.
func BenchmarkEnqueuePlaces(b *testing.B) {
	eachSize(b, func(b *testing.B, l *log) {
		l.m.work.settings.MaxQueued = 1 << 40
		l.ok(register("free", "i1", spec("g", 0, "tier", "gold")))
		for i := 0; b.Loop(); i++ {
			r := l.ok(submit(selecting("tier=gold")))
			b.StopTimer()
			l.ok(exited(r.Jobs[0], "i1", 0))
			l.entries = l.entries[:0]
			b.StartTimer()
		}
	})
}

// BenchmarkSnapshot writes and restores 200,000 finished jobs.
func BenchmarkSnapshot(b *testing.B) {
	l := began(b)
	l.check = false
	l.ok(register("h", "i1", spec("g", 0)))
	for range 200 {
		s := make([]command.JobSpec, 1000)
		for i := range s {
			s[i] = pinned("h:g")
			s[i].NoWait = true
		}
		l.one(submit(s...))
		l.entries = nil
	}
	b.Run("write", func(b *testing.B) {
		for b.Loop() {
			if _, err := l.m.Snapshot().WriteTo(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("restore", func(b *testing.B) {
		data := contents(b, l.m)
		for b.Loop() {
			if err := New(Options{}).Restore(bytes.NewReader(data)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
