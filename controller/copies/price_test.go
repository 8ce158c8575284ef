package copies

import (
	"context"
	"runtime"
	"testing"
	"time"

	"rcd/relay"
	"rcd/wire"
)

// BenchmarkTake is what copying costs a processor, beside the network: checksum,
// digest and the write.
func BenchmarkTake(b *testing.B) {
	s, err := Open(context.Background(), Options{Dir: b.TempDir(), Limit: Limit{Bytes: 4 << 30}, Disk: (&disk{roomy, roomy}).stat})
	if err != nil {
		b.Fatal(err)
	}
	w, err := s.Begin(Key{1, 1})
	if err != nil {
		b.Fatal(err)
	}
	defer w.Close()
	piece := random(32 << 10)
	b.SetBytes(int64(len(piece)))
	at := int64(0)
	for b.Loop() {
		if err := w.Take(context.Background(), relay.Data{Offset: at, Stream: wire.StreamStdout, Bytes: piece}); err != nil {
			b.Fatal(err)
		}
		at += int64(len(piece))
	}
}

// BenchmarkKept is what a copy of a small output costs: its making, memory while
// it is kept, and what a start reads.
func BenchmarkKept(b *testing.B) {
	const n = 10_000
	dir := b.TempDir()
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	output := random(300)
	for b.Loop() {
		before := heap()
		s, err := Open(context.Background(), Options{Dir: dir, Limit: Limit{Bytes: 4 << 30}, Disk: (&disk{roomy, roomy}).stat})
		if err != nil {
			b.Fatal(err)
		}
		for job := uint64(1); job <= n; job++ {
			if _, there := s.State(job); there {
				continue
			}
			if err := put(s, job, output, int64(job)); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(heap()-before)/n, "heap-bytes/copy")
		runtime.KeepAlive(s)
		began := time.Now()
		if _, err := Open(context.Background(), s.options); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(time.Since(began))/n, "ns-open/copy")
	}
}
