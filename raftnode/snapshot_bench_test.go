package raftnode

import "testing"

// BenchmarkSnapshotTakesTheLengthOfTheLog is what a snapshot adds to the state
// machine's own part of it on the goroutine that applies: how much of the log is
// to stay. Here 256 MiB of small entries are there, for a budget of 64.
func BenchmarkSnapshotTakesTheLengthOfTheLog(b *testing.B) {
	s := &logStore{}
	const entries, bytes = 1 << 20, 256
	for i := range uint64(entries) {
		s.note(i+1, bytes)
	}
	for b.Loop() {
		if n := s.trailing(64 << 20); n == 0 {
			b.Fatal("nothing stays")
		}
	}
}
