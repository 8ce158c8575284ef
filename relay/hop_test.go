package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"rcd/wire"
)

// hop is a relaying node in the middle, as a controller puts it together:
// Follow into a Conduit into Send. window bounds the bytes held between the
// links; 0 means DefaultWindow.
func hop(ctx context.Context, conn Conn, dial DialFunc, from int64, window int) error {
	conduit := NewConduit(window)
	within, cancel := context.WithCancel(ctx)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		if _, _, err := Follow(within, dial, from, conduit, FollowOptions{}); err != nil {
			conduit.Fail(err)
		}
	}()
	err := Send(ctx, conn, from, conduit, SendOptions{})
	cancel()
	<-followed
	return err
}

// The leader is replaced and every cable pulled, over and over, while an agent
// sends through it to a client.
func TestHopDeliversEveryByteOnceWhateverBreaks(t *testing.T) {
	links := 0
	for seed := range uint64(6) {
		rng := rand.New(rand.NewPCG(seed, 11))
		recorded := newTape(rng, 600)
		recorded.pause = func(i int) time.Duration { return time.Duration(i%7) * time.Millisecond }
		synctest.Test(t, func(t *testing.T) {
			var mu, dialling sync.Mutex // two hops may run at once
			pull := func(c net.Conn) net.Conn {
				mu.Lock()
				defer mu.Unlock()
				return &frail{Conn: c, budget: rng.IntN(600), blackhole: rng.IntN(10) == 0}
			}
			agent := &station{tape: recorded, wrap: pull}
			agentDial := func(ctx context.Context, offset int64) (Conn, error) {
				dialling.Lock()
				defer dialling.Unlock()
				return agent.dial(ctx, offset)
			}
			leader := &station{wrap: pull}
			leader.serve = func(ctx context.Context, conn Conn, offset int64) {
				mu.Lock()
				life := time.Duration(rng.IntN(2000)) * time.Millisecond
				mu.Unlock()
				ctx, cancel := context.WithTimeoutCause(ctx, life, &MovedError{Hint: "the next one"})
				defer cancel()
				_ = hop(ctx, conn, agentDial, offset, 2000)
			}
			client := &deck{}
			next, end, err := Follow(t.Context(), leader.dial, 0, client, FollowOptions{})
			if err != nil || next != recorded.length() || !end.Complete {
				t.Fatalf("seed %d: %d, %+v, %v", seed, next, end, err)
			}
			leader.wait()
			agent.wait()
			client.check(t, recorded, 0)
			links += leader.dials + agent.dials
		})
	}
	if links < 500 {
		t.Fatalf("only %d links: the test did not carry its load", links)
	}
	t.Logf("%d links", links)
}

// An agent cut off for longer than any deadline is no reason to lose a client.
func TestHopKeepsItsReaderWhileTheFarSideIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded := newTape(rand.New(rand.NewPCG(12, 12)), 50)
		agent := &station{tape: recorded}
		agent.wrap = func(c net.Conn) net.Conn {
			if agent.dials == 1 {
				return &frail{Conn: c, budget: 200}
			}
			return c
		}
		back := time.Now().Add(10 * time.Minute)
		agentDial := func(ctx context.Context, offset int64) (Conn, error) {
			if agent.dials == 1 && time.Now().Before(back) {
				<-ctx.Done() // as a session layer that waits for its agent
				return nil, ctx.Err()
			}
			return agent.dial(ctx, offset)
		}
		leader := &station{serve: func(ctx context.Context, conn Conn, offset int64) {
			if err := hop(ctx, conn, agentDial, offset, 0); err != nil {
				t.Errorf("hop: %v", err)
			}
		}}
		client := &deck{}
		_, _, err := Follow(t.Context(), leader.dial, 0, client, FollowOptions{Notice: func(n Notice) { t.Errorf("the client noticed: %+v", n) }})
		if err != nil || leader.dials != 1 || agent.dials != 2 {
			t.Fatalf("%v, client dialled %d times, hop %d", err, leader.dials, agent.dials)
		}
		leader.wait()
		agent.wait()
		client.check(t, recorded, 0)
	})
}

func TestHopHoldsTheFarSideBackForASlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const window, piece = 256 << 10, 10_000
		recorded := &tape{}
		for i := range int64(400) {
			recorded.records = append(recorded.records, Data{Offset: i * piece, Stream: 1, Bytes: make([]byte, piece)})
		}
		recorded.records = append(recorded.records, End{Length: 400 * piece})
		agent := &station{tape: recorded}
		leader := &station{serve: func(ctx context.Context, conn Conn, offset int64) {
			_ = hop(ctx, conn, agent.dial, offset, window)
		}}
		var worst int64
		taken := int64(0)
		client := SinkFunc(func(ctx context.Context, r Record) error {
			sleep(ctx, time.Minute)
			worst = max(worst, recorded.given.Load()-taken)
			from, to := r.span()
			taken += to - from
			return nil
		})
		if _, _, err := Follow(t.Context(), leader.dial, 0, client, FollowOptions{}); err != nil {
			t.Fatal(err)
		}
		leader.wait()
		agent.wait()
		if agent.dials != 1 || leader.dials != 1 {
			t.Errorf("dialled %d and %d times", agent.dials, leader.dials)
		}
		// Besides the window: read buffers and a frame in each of four places.
		if slack := int64(2*readBuffer + 6*coalesceBytes); worst > window+slack {
			t.Errorf("%d bytes under way for a reader that stands still, window %d", worst, window)
		}
		if worst < window {
			t.Errorf("only %d bytes were ever under way: the window was not used", worst)
		}
	})
}

func TestHopPassesARefusalOn(t *testing.T) {
	refusal := &wire.StreamError{Code: "output_gone", Message: "the host is retired"}
	for name, dial := range map[string]DialFunc{
		"by dial": func(context.Context, int64) (Conn, error) { return nil, Permanent(refusal) },
		"by the far side": func(context.Context, int64) (Conn, error) {
			near, far := net.Pipe()
			go func() { _ = Refuse(far, *refusal) }()
			return near, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leader := &station{serve: func(ctx context.Context, conn Conn, offset int64) {
					_ = hop(ctx, conn, dial, offset, 0)
				}}
				_, _, err := Follow(t.Context(), leader.dial, 0, &deck{}, FollowOptions{})
				leader.wait()
				var got *wire.StreamError
				if !errors.As(err, &got) || *got != *refusal {
					t.Fatal(err)
				}
			})
		})
	}
}

func TestHopEndsWithItsReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		agent := &station{tape: newTape(rand.New(rand.NewPCG(13, 13)), 5000)}
		agent.tape.pause = func(int) time.Duration { return time.Second }
		leader := &station{serve: func(ctx context.Context, conn Conn, offset int64) {
			if err := hop(ctx, conn, agent.dial, offset, 0); !errors.Is(err, ErrReaderGone) {
				t.Errorf("hop: %v", err)
			}
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		began := time.Now()
		_, _, err := Follow(ctx, leader.dial, 0, &deck{}, FollowOptions{})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		leader.wait()
		agent.wait() // and with the hop the far side
		if time.Since(began) != 10*time.Second {
			t.Errorf("all had ended only after %v", time.Since(began))
		}
	})
}
