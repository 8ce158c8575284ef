package raftnode

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"rcd/fsm/command"
)

// fakeLog holds entries until the test answers them.
type fakeLog struct {
	entries chan *fakeFuture
	index   uint64
}

type fakeFuture struct {
	entry    command.Entry
	index    uint64
	answered chan struct{}
	err      error
	response any
}

func newFakeLog() *fakeLog { return &fakeLog{entries: make(chan *fakeFuture, 100)} }

func (l *fakeLog) apply(data []byte) raft.ApplyFuture {
	entry, err := command.DecodeEntry(data)
	if err != nil {
		panic(err)
	}
	l.index++
	f := &fakeFuture{entry: entry, index: l.index, answered: make(chan struct{})}
	l.entries <- f
	return f
}

func (f *fakeFuture) Error() error  { <-f.answered; return f.err }
func (f *fakeFuture) Response() any { return f.response }
func (f *fakeFuture) Index() uint64 { return f.index }

// accept answers every command of the entry with its own text.
func (f *fakeFuture) accept(term uint64) {
	a := applied{term: term}
	for _, cmd := range f.entry.Commands {
		a.results = append(a.results, command.Result{Message: string(cmd)})
	}
	f.response = a
	close(f.answered)
}

func (f *fakeFuture) fail(err error) {
	f.err = err
	close(f.answered)
}

const testTerm = 7

func newTestCombiner(l log) *combiner {
	stamp := int64(1000)
	return newCombiner(context.Background(), testTerm, func() int64 { stamp++; return stamp }, l)
}

type got struct {
	result command.Result
	index  uint64
	err    error
}

func proposeAsync(ctx context.Context, c *combiner, cmd []byte) <-chan got {
	out := make(chan got, 1)
	go func() {
		result, index, err := c.propose(ctx, cmd)
		out <- got{result, index, err}
	}()
	return out
}

func TestCombinerTakesWhatIsQueuedAndFansAnswersBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog()
		c := newTestCombiner(l)
		var answers []<-chan got
		ask := func(text string) {
			answers = append(answers, proposeAsync(t.Context(), c, []byte(text)))
			synctest.Wait()
		}
		ask("0") // alone: nobody waits for company
		ask("1") // second entry in flight
		for i := 2; i < 10; i++ {
			ask(fmt.Sprint(i)) // these wait for a place, together
		}
		if len(l.entries) != entriesInFlight {
			t.Fatalf("%d entries in flight", len(l.entries))
		}
		first, second := <-l.entries, <-l.entries
		second.accept(testTerm)
		synctest.Wait()
		third := <-l.entries
		if n := len(third.entry.Commands); n != 8 {
			t.Errorf("the third entry has %d commands", n)
		}
		if third.entry.Term != testTerm || third.entry.Stamp <= second.entry.Stamp {
			t.Errorf("entry of term %d, stamps %d then %d", third.entry.Term, second.entry.Stamp, third.entry.Stamp)
		}
		first.accept(testTerm)
		third.accept(testTerm)
		for i, a := range answers {
			wantIndex := uint64(min(i, 2) + 1)
			if g := <-a; g.err != nil || g.result.Message != fmt.Sprint(i) || g.index != wantIndex {
				t.Errorf("command %d: %+v, want index %d", i, g, wantIndex)
			}
		}
		c.close()
		c.wait.Wait()
	})
}

func TestEntriesStayWithinTheirBounds(t *testing.T) {
	for _, test := range []struct {
		name  string
		sizes []int
		want  []int // commands in each entry after the two that fill the pipe
	}{
		{"by count", repeat(1, 600), []int{256, 256, 88}},
		{"by bytes", repeat(60<<10, 5), []int{2, 2, 1}},
		{"a large one alone", []int{10, 1 << 20, 10}, []int{1, 1, 1}},
		{"a large one first", []int{1 << 20, 10, 10}, []int{1, 2}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newFakeLog()
				c := newTestCombiner(l)
				for _, size := range append([]int{1, 1}, test.sizes...) {
					proposeAsync(t.Context(), c, make([]byte, size))
					synctest.Wait()
				}
				(<-l.entries).accept(testTerm)
				(<-l.entries).accept(testTerm)
				for i, want := range test.want {
					synctest.Wait()
					f := <-l.entries
					if n := len(f.entry.Commands); n != want {
						t.Errorf("entry %d has %d commands, want %d", i, n, want)
					}
					data, _ := command.EncodeEntry(f.entry.Term, f.entry.Stamp, f.entry.Commands)
					if len(f.entry.Commands) > 1 && len(data) > command.MaxEntryBytes {
						t.Errorf("entry %d has %d bytes", i, len(data))
					}
					f.accept(testTerm)
				}
				synctest.Wait()
				if len(l.entries) != 0 {
					t.Errorf("%d entries more", len(l.entries))
				}
				c.close()
				c.wait.Wait()
			})
		})
	}
}

func repeat(size, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = size
	}
	return out
}

func TestErrorsSayWhetherTheCommandMayHappen(t *testing.T) {
	for _, test := range []struct {
		err  error
		want error
	}{
		{raft.ErrNotLeader, ErrNotLeader},
		{raft.ErrLeadershipTransferInProgress, ErrNotLeader},
		{raft.ErrEnqueueTimeout, ErrOverloaded},
		{raft.ErrLeadershipLost, ErrOutcomeUnknown},
		{raft.ErrRaftShutdown, ErrOutcomeUnknown},
		{raft.ErrAbortedByRestore, ErrOutcomeUnknown},
		{errors.New("disk full"), ErrOutcomeUnknown},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newFakeLog()
			c := newTestCombiner(l)
			answer := proposeAsync(t.Context(), c, []byte("x"))
			(<-l.entries).fail(test.err)
			if g := <-answer; g.err != test.want {
				t.Errorf("raft said %v, the proposer hears %v, want %v", test.err, g.err, test.want)
			}
			c.close()
			c.wait.Wait()
		})
	}
}

func TestLossAnswersTheQueueNotLeaderAndTheRestUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog()
		c := newTestCombiner(l)
		var answers []<-chan got
		for range 4 {
			answers = append(answers, proposeAsync(t.Context(), c, []byte("x")))
			synctest.Wait()
		}
		c.close()
		for _, a := range answers[entriesInFlight:] {
			if g := <-a; g.err != ErrNotLeader {
				t.Errorf("queued: %v", g.err)
			}
		}
		for _, a := range answers[:entriesInFlight] {
			(<-l.entries).fail(raft.ErrLeadershipLost)
			if g := <-a; g.err != ErrOutcomeUnknown {
				t.Errorf("in flight: %v", g.err)
			}
		}
		if g := <-proposeAsync(t.Context(), c, []byte("late")); g.err != ErrNotLeader {
			t.Errorf("after the close: %v", g.err)
		}
		c.wait.Wait()
	})
}

func TestEntryLoggedInAnotherTermHadNoEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog()
		c := newTestCombiner(l)
		answer := proposeAsync(t.Context(), c, []byte("x"))
		(<-l.entries).accept(testTerm + 2) // lost and regained in between
		if g := <-answer; g.err != ErrNotLeader {
			t.Errorf("got %v", g.err)
		}
		c.close()
		c.wait.Wait()
	})
}

func TestImpatientProposerLearnsWhetherItIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog()
		c := newTestCombiner(l)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var answers []<-chan got
		for _, text := range []string{"in flight", "in flight", "queued"} {
			answers = append(answers, proposeAsync(ctx, c, []byte(text)))
			synctest.Wait()
		}
		for _, a := range answers[:2] {
			if g := <-a; !errors.Is(g.err, ErrOutcomeUnknown) || !errors.Is(g.err, context.DeadlineExceeded) {
				t.Errorf("in flight: %v", g.err)
			}
		}
		if g := <-answers[2]; !errors.Is(g.err, ErrOverloaded) || !errors.Is(g.err, context.DeadlineExceeded) {
			t.Errorf("queued: %v", g.err)
		}
		(<-l.entries).accept(testTerm)
		(<-l.entries).accept(testTerm)
		synctest.Wait()
		if len(l.entries) != 0 {
			t.Errorf("a withdrawn command was logged: %q", (<-l.entries).entry.Commands)
		}
		c.close()
		c.wait.Wait()
	})
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog()
		c := newTestCombiner(l)
		for range entriesInFlight {
			proposeAsync(t.Context(), c, []byte("x"))
			synctest.Wait()
		}
		for range maxQueued {
			proposeAsync(t.Context(), c, []byte("x"))
		}
		synctest.Wait()
		if g := <-proposeAsync(t.Context(), c, []byte("x")); g.err != ErrOverloaded {
			t.Errorf("past the bound: %v", g.err)
		}
		c.close()
		for range entriesInFlight {
			(<-l.entries).accept(testTerm)
		}
		c.wait.Wait()
	})
}

func TestQueueIsBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFakeLog()
		c := newTestCombiner(l)
		large := make([]byte, command.MaxCommandBytes)
		for range entriesInFlight + maxQueuedBytes/len(large) {
			proposeAsync(t.Context(), c, large)
			synctest.Wait()
		}
		if g := <-proposeAsync(t.Context(), c, []byte("x")); g.err != ErrOverloaded {
			t.Errorf("past the bound: %v", g.err)
		}
		c.close()
		for range entriesInFlight {
			(<-l.entries).accept(testTerm)
		}
		c.wait.Wait()
	})
}
