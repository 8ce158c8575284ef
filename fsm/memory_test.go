package fsm

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"rcd/fsm/command"
	"rcd/model"
)

// The numbers of docs/limits.md come from the benchmarks of this file:
//
//	go test ./fsm -run '^$' -bench 'Memory|Snapshot' -benchtime 1x

// typical makes a job what jobs mostly are: a command of three words and an
// environment of ten variables and 500 bytes.
func typical(s command.JobSpec) command.JobSpec {
	s.Command = []string{"python3", "train.py", "--config=experiments/resnet50.yaml"}
	s.Cwd = "/home/ann/projects/vision"
	s.Env = map[string]string{}
	for i := range 10 {
		s.Env[fmt.Sprintf("VARIABLE_%02d", i)] = strings.Repeat("v", 39)
	}
	return s
}

// finished returns a log with this many finished typical jobs, each of which
// has run.
func finished(b *testing.B, jobs int) *log {
	b.Helper()
	const devices = 250 // at most command.MaxCommandsPerEntry
	l := began(b)
	l.check = false
	r := register("host-0001", "i1")
	for i := range devices {
		r.Devices = append(r.Devices, spec(fmt.Sprintf("gpu%03d", i), 0, "vram", "80G"))
	}
	l.ok(r)
	for ; jobs > 0; jobs -= devices {
		var s []command.JobSpec
		for range min(devices, jobs) {
			s = append(s, typical(selecting("vram>=40G")))
		}
		var ends []any
		for _, j := range l.ok(submit(s...)).Jobs {
			f := exited(j, "i1", 0)
			f.OutputDigest = bytes.Repeat([]byte{7}, 32)
			ends = append(ends, f)
		}
		l.many(ends...)
		l.entries = nil
	}
	return l
}

// liveHeap returns the bytes that a garbage collection leaves.
func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what finalizers let go
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// grown returns what build keeps alive through what it returns, in bytes.
func grown(build func() *log) (*log, int64) {
	before := liveHeap()
	l := build()
	l.entries, l.events, l.load = nil, nil, load{}
	after := liveHeap()
	runtime.KeepAlive(l)
	return l, after - before
}

// BenchmarkMemory measures what a row costs, with its indexes and its part in
// the scheduler: live heap, and live heap after a restart from a snapshot.
func BenchmarkMemory(b *testing.B) {
	report := func(b *testing.B, unit string, rows int, l *log, live int64) {
		data := contents(b, l.m)
		again, restored := grown(func() *log {
			m := New(Options{})
			if err := m.Restore(bytes.NewReader(data)); err != nil {
				b.Fatal(err)
			}
			return &log{m: m}
		})
		runtime.KeepAlive(again)
		runtime.KeepAlive(data)
		b.ReportMetric(float64(live)/float64(rows), "B/"+unit)
		b.ReportMetric(float64(restored)/float64(rows), "B/restored-"+unit)
		b.ReportMetric(float64(len(data))/float64(rows), "B/stored-"+unit)
		b.ReportMetric(0, "ns/op")
	}
	b.Run("finished", func(b *testing.B) {
		for b.Loop() {
			const jobs = 200_000
			l, live := grown(func() *log { return finished(b, jobs) })
			report(b, "job", jobs, l, live)
		}
	})
	b.Run("queued", func(b *testing.B) {
		for b.Loop() {
			const jobs = 100_000
			l, live := grown(func() *log { return waiting(b, jobs, false) })
			report(b, "job", jobs, l, live)
		}
	})
	b.Run("request", func(b *testing.B) {
		for b.Loop() {
			const jobs = 100_000
			bare, without := grown(func() *log { return waiting(b, jobs, false) })
			l, live := grown(func() *log { return waiting(b, jobs, true) })
			b.ReportMetric(float64(live-without)/jobs, "B/request")
			b.ReportMetric(0, "ns/op")
			runtime.KeepAlive(bare)
			runtime.KeepAlive(l)
		}
	})
	b.Run("device", func(b *testing.B) {
		for b.Loop() {
			l, live := grown(func() *log { return withLabels(b) })
			report(b, "device", l.m.View().Counts().Devices, l, live)
		}
	})
	b.Run("lease", func(b *testing.B) {
		for b.Loop() {
			l := withLabels(b)
			n := l.m.View().Counts().Devices
			_, live := grown(func() *log {
				fill(l, n, func(int) command.JobSpec { return typical(selecting("key-00=value-00")) })
				return l
			})
			b.ReportMetric(float64(live)/float64(n), "B/lease+job")
			b.ReportMetric(0, "ns/op")
		}
	})
}

// waiting returns a log with this many queued typical jobs over 1,000 devices,
// submitted one by one under a request ID each if so asked.
func waiting(b *testing.B, jobs int, requests bool) *log {
	b.Helper()
	const devices = 1000
	l := loaded(b, devices, 0)
	if !requests {
		fill(l, jobs, func(i int) command.JobSpec { return typical(benchJob(i, devices)) })
		return l
	}
	for i := range jobs {
		r := command.Request{Scope: "ann", ID: fmt.Sprintf("6f1c2d3e-4b5a-4978-8a6b-%012d", i), Digest: bytes.Repeat([]byte{9}, 32)}
		l.apply(encode(b, r, submit(typical(benchJob(i, devices)))))
		l.entries = l.entries[:0]
	}
	return l
}

// withLabels returns a log with 10,000 free devices of 20 labels on 1,250 hosts.
func withLabels(b *testing.B) *log {
	b.Helper()
	l := began(b)
	l.check = false
	for h := range 1250 {
		r := register(fmt.Sprintf("host-%04d", h), "6f1c2d3e-4b5a-4978-8a6b-000000000000")
		for d := range 8 {
			s := command.DeviceSpec{Name: fmt.Sprint("gpu", d)}
			for i := range 10 {
				s.Declared = append(s.Declared, command.KV{Key: fmt.Sprintf("key-%02d", i), Value: fmt.Sprintf("value-%02d", i)})
				s.Detected = append(s.Detected, command.KV{Key: fmt.Sprintf("found-%02d", i), Value: fmt.Sprintf("value-%02d", i)})
			}
			r.Devices = append(r.Devices, s)
		}
		l.ok(r)
	}
	l.entries = nil
	return l
}

// BenchmarkSnapshot is about the snapshot of 200,000 finished jobs.
//
// take is all of it that holds up Apply; raftnode adds the length of the log
// that is to stay. Writing goes on beside Apply: "apply beside" is an enqueue
// that queues while a snapshot is being written, "apply" the same without.
func BenchmarkSnapshot(b *testing.B) {
	l := finished(b, 200_000)
	b.Run("take", func(b *testing.B) {
		for b.Loop() {
			_ = l.m.Snapshot()
		}
	})
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
	b.Run("apply", func(b *testing.B) { benchApply(b, l) })
	b.Run("apply beside", func(b *testing.B) {
		stop, stopped := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(stopped)
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := l.m.Snapshot().WriteTo(io.Discard); err != nil {
					b.Error(err)
				}
			}
		}()
		benchApply(b, l)
		close(stop)
		<-stopped
	})
}

// benchApply measures 10,000 entries and reports the mean, and the longest.
func benchApply(b *testing.B, l *log) {
	var total, longest time.Duration
	n := 0
	for b.Loop() {
		for range 10_000 / batch {
			entries := alone(l, slicesOf(batch, submit(pinned("host-0001:gpu000"))))
			var kills []any
			for _, data := range entries {
				l.index++
				start := time.Now()
				r, _, err := l.m.Apply(l.index, l.term, data)
				took := time.Since(start)
				if err != nil || r[0].Code != command.OK {
					b.Fatalf("%v: %+v", err, r)
				}
				total, longest, n = total+took, max(longest, took), n+1
				if j := r[0].Jobs[0]; j.State == model.JobQueued {
					kills = append(kills, &command.JobKill{Job: j.Number, By: "ann"})
				}
			}
			l.many(kills...)
			l.entries = nil
		}
	}
	b.ReportMetric(float64(total.Nanoseconds())/float64(n), "ns/apply")
	b.ReportMetric(float64(longest.Nanoseconds()), "ns/longest")
	b.ReportMetric(0, "ns/op")
}

func slicesOf(n int, body any) []any {
	bodies := make([]any, n)
	for i := range bodies {
		bodies[i] = body
	}
	return bodies
}
