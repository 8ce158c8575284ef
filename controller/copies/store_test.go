package copies

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"rcd/agent/spool"
	"rcd/relay"
	"rcd/wire"
)

// disk is one that a test fills.
type disk struct{ size, free int64 }

func (d *disk) stat(string) (size, free int64, err error) { return d.size, d.free, nil }

const roomy = 1 << 40

func open(t *testing.T, dir string, limit int64) *Store {
	t.Helper()
	d := &disk{roomy, roomy}
	s, err := Open(context.Background(), Options{Dir: dir, Cluster: "c", Generation: 1, Limit: Limit{Bytes: limit}, Disk: d.stat})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func random(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte('a' + rand.IntN(26))
	}
	return p
}

func digestOf(p []byte) string {
	sum := sha256.Sum256(p)
	return hex.EncodeToString(sum[:])
}

// put copies an output, and completes it unless endedMS is 0.
func put(s *Store, job uint64, output []byte, endedMS int64) error {
	w, err := s.Begin(Key{job, job})
	if err != nil {
		return err
	}
	defer w.Close()
	for at := w.Length(); at < int64(len(output)); at = w.Length() {
		piece := output[at:min(at+32<<10, int64(len(output)))]
		if err := w.Take(context.Background(), relay.Data{Offset: at, Stream: wire.StreamStderr, Bytes: piece}); err != nil {
			return err
		}
	}
	if endedMS == 0 {
		return nil
	}
	return w.Complete(digestOf(output), endedMS)
}

// read returns the bytes of a copy and its End.
func read(s *Store, job uint64, mode Mode) (data []byte, gaps []relay.Gap, end relay.End, err error) {
	source, err := s.Open(Key{job, job}, 0, mode)
	if err != nil {
		return nil, nil, end, err
	}
	defer source.Close()
	for {
		record, err := source.Next(context.Background())
		if err != nil {
			return data, gaps, end, err
		}
		switch r := record.(type) {
		case relay.Data:
			if r.Stream != wire.StreamStderr {
				return nil, nil, end, errors.New("another stream")
			}
			data = append(data, r.Bytes...)
		case relay.Gap:
			gaps = append(gaps, r)
		case relay.End:
			return data, gaps, r, nil
		}
	}
}

func TestACopyIsReadAsItWasWrittenAlsoAfterARestart(t *testing.T) {
	dir, output := t.TempDir(), random(300_000)
	s := open(t, dir, 1<<30)
	if err := put(s, 1, output, 10); err != nil {
		t.Fatal(err)
	}
	if err := put(s, 2, output[:100_000], 0); err != nil {
		t.Fatal(err)
	}
	before := s.Usage()
	for _, s := range []*Store{s, open(t, dir, 1<<30)} {
		data, gaps, end, err := read(s, 1, Mode{})
		if err != nil || len(gaps) > 0 || !end.Complete || !bytes.Equal(data, output) {
			t.Errorf("complete: %d bytes, gaps %v, end %+v, %v", len(data), gaps, end, err)
		}
		data, _, end, err = read(s, 2, Mode{Follow: true}) // nobody writes it
		if err != nil || end.Complete || end.Length != 100_000 || !bytes.Equal(data, output[:100_000]) {
			t.Errorf("begun: %d bytes, end %+v, %v", len(data), end, err)
		}
		if u := s.Usage(); u != before || u.Copies != 2 || u.Complete != 1 {
			t.Errorf("usage %+v, before %+v", u, before)
		}
	}
	s = open(t, dir, 1<<30)
	if err := put(s, 2, output, 11); err != nil {
		t.Fatal(err)
	}
	if data, _, end, err := read(s, 2, Mode{}); err != nil || !end.Complete || !bytes.Equal(data, output) {
		t.Errorf("gone on: %d bytes, end %+v, %v", len(data), end, err)
	}
}

func TestWhatIsOfAnotherClusterGenerationOrLeaseIsRemoved(t *testing.T) {
	dir := t.TempDir()
	if err := put(open(t, dir, 1<<30), 1, random(1000), 10); err != nil {
		t.Fatal(err)
	}
	for _, o := range []Options{{Cluster: "d", Generation: 1}, {Cluster: "c", Generation: 2}} {
		at := t.TempDir()
		if err := os.CopyFS(at, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		o.Dir, o.Limit = at, Limit{Bytes: 1 << 30}
		s, err := Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if left, _ := os.ReadDir(at); len(s.Jobs()) > 0 || len(left) > 0 {
			t.Errorf("%+v: %v is left", o, left)
		}
	}
	s := open(t, dir, 1<<30)
	if _, err := s.Begin(Key{1, 0}); !errors.Is(err, ErrNone) {
		t.Errorf("an earlier lease: %v", err)
	}
	w, err := s.Begin(Key{1, 2})
	if err != nil || w.Length() != 0 {
		t.Fatal("a later lease:", err)
	}
	w.Close()
	if _, err := s.Open(Key{1, 1}, 0, Mode{}); !errors.Is(err, ErrNone) {
		t.Errorf("the earlier lease is still read: %v", err)
	}
}

// TestDamageIsSeenAndFetchedAgain takes bytes of a copy in each way a disk can.
func TestDamageIsSeenAndFetchedAgain(t *testing.T) {
	output := random(2 << 20)
	edit := func(change func(t *testing.T, dir string, segments []string)) func(t *testing.T) string {
		return func(t *testing.T) string {
			dir := t.TempDir()
			d := &disk{roomy, roomy}
			s, err := Open(context.Background(), Options{Dir: dir, Cluster: "c", Generation: 1, Limit: Limit{Bytes: 1 << 30}, PerJob: 4 << 20, Disk: d.stat})
			if err != nil {
				t.Fatal(err)
			}
			if err := put(s, 1, output, 10); err != nil {
				t.Fatal(err)
			}
			segments, err := filepath.Glob(filepath.Join(dir, "1", "*.seg"))
			if err != nil || len(segments) < 4 {
				t.Fatal(segments, err)
			}
			change(t, dir, segments)
			return dir
		}
	}
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		make func(t *testing.T) string
		late bool // seen only by a reader
	}{
		"a segment gone":  {edit(func(t *testing.T, _ string, s []string) { must(t, os.Remove(s[1])) }), false},
		"a segment short": {edit(func(t *testing.T, _ string, s []string) { must(t, os.Truncate(s[1], 100)) }), false},
		"no header":       {edit(func(t *testing.T, dir string, _ []string) { must(t, os.Remove(filepath.Join(dir, "1", headerName))) }), false},
		"an empty header": {edit(func(t *testing.T, dir string, _ []string) {
			must(t, os.Truncate(filepath.Join(dir, "1", headerName), 0))
		}), false},
		"a byte turned": {edit(func(t *testing.T, _ string, s []string) {
			raw, err := os.ReadFile(s[1])
			must(t, err)
			raw[len(raw)/2] ^= 1
			must(t, os.WriteFile(s[1], raw, 0o600))
		}), true},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, c.make(t), 1<<30)
			data, _, _, err := read(s, 1, Mode{})
			if !c.late {
				if !errors.Is(err, ErrNone) {
					t.Fatalf("%d bytes, %v", len(data), err)
				}
			} else {
				state, _ := s.State(1)
				if !errors.Is(err, ErrDamaged) || !bytes.HasPrefix(output, data) || state.Complete || !state.Damaged {
					t.Fatalf("%d bytes, %+v, %v", len(data), state, err)
				}
				// For those who have nobody else: what is there, and where it is not.
				_, gaps, end, err := read(s, 1, Mode{Holes: true})
				if err != nil || len(gaps) != 1 || end.Length != int64(len(output)) {
					t.Fatalf("gaps %+v, end %+v, %v", gaps, end, err)
				}
			}
			if err := put(s, 1, output, 10); err != nil {
				t.Fatal(err)
			}
			if data, _, end, err := read(s, 1, Mode{}); err != nil || !end.Complete || !bytes.Equal(data, output) {
				t.Errorf("fetched again: %d bytes, %+v, %v", len(data), end, err)
			}
		})
	}
}

func TestACopyWithAnotherDigestIsRemoved(t *testing.T) {
	s := open(t, t.TempDir(), 1<<30)
	w, err := s.Begin(Key{1, 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Take(t.Context(), relay.Data{Stream: wire.StreamStdout, Bytes: []byte("abc")}); err != nil {
		t.Fatal(err)
	}
	if err := w.Complete(digestOf([]byte("abd")), 10); !errors.Is(err, ErrDamaged) {
		t.Errorf("error %v", err)
	}
	w.Close()
	if jobs := s.Jobs(); len(jobs) > 0 {
		t.Errorf("%v is left", jobs)
	}
}

func TestOneWritesAndFollowersSeeItGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, t.TempDir(), 1<<30)
		w, err := s.Begin(Key{1, 1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Begin(Key{1, 1}); !errors.Is(err, ErrBusy) {
			t.Errorf("a second claim: %v", err)
		}
		type result struct {
			data []byte
			gaps []relay.Gap
			end  relay.End
			err  error
		}
		got := make(chan result, 1)
		go func() {
			data, gaps, end, err := read(s, 1, Mode{Follow: true})
			got <- result{data, gaps, end, err}
		}()
		take := func(record relay.Record) {
			t.Helper()
			synctest.Wait() // the follower has all there is
			if err := w.Take(t.Context(), record); err != nil {
				t.Fatal(err)
			}
		}
		take(relay.Data{Stream: wire.StreamStderr, Bytes: []byte("abc")})
		gap := relay.Gap{From: 3, To: 10, Cause: spool.CauseLost}
		take(gap)
		take(relay.Data{Offset: 10, Stream: wire.StreamStderr, Bytes: []byte("def")})
		synctest.Wait()
		if err := w.Complete(digestOf([]byte("of more than is here")), 10); err != nil {
			t.Fatal(err)
		}
		r := <-got
		// What was lost before it came here is no damage of the copy.
		gap.Cause += " on its host"
		if r.err != nil || string(r.data) != "abcdef" || !slices.Equal(r.gaps, []relay.Gap{gap}) || !r.end.Complete || r.end.Length != 13 {
			t.Errorf("%+v", r)
		}
		w.Close()
		if state, _ := s.State(1); !state.Complete || !state.Gaps || state.Damaged || state.Length != 13 {
			t.Errorf("%+v", state)
		}
	})
}

func TestTheOldestFinishedGoFirst(t *testing.T) {
	const each = 300_000
	dir := t.TempDir()
	s := open(t, dir, 4<<20)
	running := random(each)
	if err := put(s, 100, running, 0); err != nil {
		t.Fatal(err)
	}
	for job := uint64(1); job <= 30; job++ { // in the order of their ends, which is not that of the numbers
		if err := put(s, 31-job, random(each), int64(1000+job)); err != nil {
			t.Fatal(err)
		}
		if u := s.Usage(); u.Bytes > 4<<20 || u.Stopped != "" {
			t.Fatalf("%+v", u)
		}
	}
	s.Clean()
	jobs := s.Jobs()
	slices.Sort(jobs)
	n := len(jobs)
	if n < 10 || jobs[n-1] != 100 || jobs[0] != 1 || jobs[n-2] != uint64(n-1) {
		t.Errorf("kept %v", jobs)
	}
	if s.Fits(1001, each) {
		t.Error("a copy that would be the first to go is begun")
	}
	if !s.Fits(2000, each) {
		t.Error("a copy of the latest job is not begun")
	}
	// What is on the disk is what is counted, also for the next process.
	onDisk, err := os.ReadDir(dir)
	if err != nil || len(onDisk) != n {
		t.Errorf("%d directories for %d copies, %v", len(onDisk), n, err)
	}
	if a, b := s.Usage(), open(t, dir, 4<<20).Usage(); a != b {
		t.Errorf("usage %+v, after a restart %+v", a, b)
	}
	// A limit that was lowered takes the oldest too, and a running job's copy last.
	s = open(t, dir, 1<<20)
	if u := s.Usage(); u.Bytes > 1<<20 || u.Copies == 0 {
		t.Errorf("%+v", u)
	}
	if data, _, _, err := read(s, 100, Mode{}); err != nil || !bytes.Equal(data, running) {
		t.Errorf("the running job: %d bytes, %v", len(data), err)
	}
}

func TestOutputOfRunningJobsStopsAtTheLimit(t *testing.T) {
	s := open(t, t.TempDir(), 1<<20)
	var failed error
	for job := uint64(1); job <= 10 && failed == nil; job++ {
		failed = put(s, job, random(200_000), 0)
	}
	u := s.Usage()
	if !errors.Is(failed, ErrNoRoom) || u.Bytes > 1<<20 || !strings.Contains(u.Stopped, "have not ended") {
		t.Fatalf("%v, %+v", failed, u)
	}
	s.Ended(1, 50)
	if err := put(s, 9, random(200_000), 0); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.State(1); ok || s.Usage().Stopped != "" {
		t.Errorf("%+v", s.Usage())
	}
}

func TestCopiesStopAtTheWatermarkAndGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ size, least int64 }{{1 << 40, 2 << 30}, {10 << 30, 1 << 30}} {
			d := &disk{c.size, c.least}
			s, err := Open(context.Background(), Options{Dir: t.TempDir(), Limit: Limit{Percent: 20}, Disk: d.stat})
			if err != nil {
				t.Fatal(err)
			}
			if err := put(s, 1, random(1000), 10); err != nil {
				t.Fatal(err)
			}
			time.Sleep(statEvery)
			d.free--
			if err := put(s, 2, random(1000), 11); !errors.Is(err, ErrNoRoom) || s.Stopped() == "" || s.Fits(11, 1000) {
				t.Errorf("%+v: %v, %q", c, err, s.Stopped())
			}
			if data, _, _, err := read(s, 1, Mode{}); err != nil || len(data) != 1000 {
				t.Errorf("%+v: what is there: %d bytes, %v", c, len(data), err)
			}
			time.Sleep(statEvery)
			d.free++
			if err := put(s, 2, random(1000), 11); err != nil || s.Stopped() != "" {
				t.Errorf("%+v: %v, %q", c, err, s.Stopped())
			}
		}
	})
}

func TestAReaderOfACopyThatGoesIsTold(t *testing.T) {
	s := open(t, t.TempDir(), 1<<30)
	output := random(1 << 20)
	if err := put(s, 1, output, 10); err != nil {
		t.Fatal(err)
	}
	source, err := s.Open(Key{1, 1}, 0, Mode{})
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	if _, err := source.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Drop(1)
	s.Clean()
	if _, err := source.Next(t.Context()); !errors.Is(err, ErrNone) {
		t.Errorf("error %v", err)
	}
	if u := s.Usage(); u.Bytes != 0 || u.Copies != 0 {
		t.Errorf("%+v", u)
	}
}

func TestLimitsAreRead(t *testing.T) {
	for text, want := range map[string]Limit{
		"20%": {Percent: 20}, "0": {}, "0%": {}, "500G": {Bytes: 500 << 30}, "1048576": {Bytes: 1 << 20}, "2T": {Bytes: 2 << 40},
	} {
		if got, err := ParseLimit(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "%", "91%", "-1", "-1%", "1000", "5X", "G", "99999999T", "20 %"} {
		if got, err := ParseLimit(text); err == nil {
			t.Errorf("%q is %+v", text, got)
		}
	}
	if got := (Limit{Percent: 20}).of(1000); got != 200 {
		t.Errorf("%d", got)
	}
}
