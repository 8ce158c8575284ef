package relay

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"rcd/wire"
)

// The cut falls before, inside and after every header and payload there is.
func TestFollowDeliversEveryByteOnceWhereverTheLinkIsCut(t *testing.T) {
	recorded := newTape(rand.New(rand.NewPCG(1, 1)), 12)
	for _, blackhole := range []bool{false, true} {
		for cut := 0; ; cut++ {
			uncut := false
			synctest.Test(t, func(t *testing.T) {
				s := &station{tape: recorded}
				s.wrap = func(c net.Conn) net.Conn {
					if s.dials == 1 {
						return &frail{Conn: c, budget: cut, blackhole: blackhole}
					}
					return c
				}
				sink := &deck{}
				next, end, err := Follow(t.Context(), s.dial, 0, sink, FollowOptions{})
				if err != nil || next != recorded.length() || !end.Complete {
					t.Fatalf("cut after %d bytes: %d, %+v, %v", cut, next, end, err)
				}
				sink.check(t, recorded, 0)
				s.wait()
				uncut = s.dials == 1
			})
			if t.Failed() {
				return
			}
			if uncut {
				if cut < int(recorded.length()) {
					t.Fatalf("only %d positions were cut at", cut)
				}
				break
			}
		}
	}
}

func TestFollowSurvivesThousandsOfCuts(t *testing.T) {
	cuts := 0
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 7))
		recorded := newTape(rng, 1500)
		from := int64(rng.IntN(int(recorded.length())))
		synctest.Test(t, func(t *testing.T) {
			s := &station{tape: recorded}
			s.wrap = func(c net.Conn) net.Conn {
				return &frail{Conn: c, budget: rng.IntN(400), blackhole: rng.IntN(10) == 0}
			}
			dial := func(ctx context.Context, offset int64) (Conn, error) {
				if rng.IntN(5) == 0 {
					return nil, errors.New("connection refused")
				}
				return s.dial(ctx, offset)
			}
			// Small pieces, so that what is sent is not one frame.
			recorded.pause = func(i int) time.Duration { return time.Duration(i%7) * time.Millisecond }
			sink := &deck{next: from}
			next, _, err := Follow(t.Context(), dial, from, sink, FollowOptions{})
			if err != nil || next != recorded.length() {
				t.Fatalf("seed %d from %d: %d, %v", seed, from, next, err)
			}
			sink.check(t, recorded, from)
			s.wait()
			cuts += s.dials
		})
	}
	if cuts < 2000 {
		t.Fatalf("only %d links were cut: the test did not carry its load", cuts)
	}
	t.Logf("%d links", cuts)
}

func TestFollowTellsOnceOfEachLossAndResumption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded := newTape(rand.New(rand.NewPCG(2, 2)), 10)
		s := &station{tape: recorded}
		s.wrap = func(c net.Conn) net.Conn {
			if s.dials == 1 {
				return &frail{Conn: c, budget: 100}
			}
			return c
		}
		away := time.Time{}
		dial := func(ctx context.Context, offset int64) (Conn, error) {
			if s.dials == 1 && away.IsZero() {
				away = time.Now().Add(20 * time.Second)
			}
			if time.Now().Before(away) {
				return nil, errors.New("connection refused")
			}
			return s.dial(ctx, offset)
		}
		var notices []Notice
		sink := &deck{}
		if _, _, err := Follow(t.Context(), dial, 0, sink, FollowOptions{Notice: func(n Notice) { notices = append(notices, n) }}); err != nil {
			t.Fatal(err)
		}
		s.wait()
		sink.check(t, recorded, 0)
		if len(notices) != 2 || notices[0].Resumed || notices[0].Err == nil || !notices[1].Resumed || notices[1].Offset != notices[0].Offset {
			t.Fatalf("notices: %+v", notices)
		}
		// Dialled at most once a second, so noticed within one of its return.
		if d := notices[1].After; d < 20*time.Second || d > 21*time.Second {
			t.Errorf("resumed after %v of a 20 s outage", d)
		}
	})
}

func TestFollowPausesBetweenTriesAndNeverInStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var tries []time.Time
		dial := func(context.Context, int64) (Conn, error) {
			tries = append(tries, time.Now())
			return nil, errors.New("connection refused")
		}
		if _, _, err := Follow(ctx, dial, 0, &deck{}, FollowOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		for i := 1; i < len(tries); i++ {
			want := min(backoffMost, backoffFirst<<min(i-1, 10))
			if d := tries[i].Sub(tries[i-1]); d < want/2 || d > want {
				t.Errorf("pause %d was %v, want %v to %v", i, d, want/2, want)
			}
		}
		if len(tries) < 60 {
			t.Errorf("%d tries in a minute", len(tries))
		}
	})
}

// A node that accepts and hangs up must not be dialled in a tight loop.
func TestFollowPausesWhenLinksBringNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		s := &station{serve: func(_ context.Context, conn Conn, _ int64) {
			_ = wire.WriteFrame(conn, wire.Frame{Type: wire.FrameKeepAlive})
			conn.Close()
		}}
		if _, _, err := Follow(ctx, s.dial, 0, &deck{}, FollowOptions{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		s.wait()
		if s.dials > 130 {
			t.Errorf("%d tries in a minute", s.dials)
		}
	})
}

func TestFollowEndsAtAPermanentError(t *testing.T) {
	forbidden := errors.New("403 forbidden")
	refusal := &wire.StreamError{Code: "not_found", Message: "no such job"}
	for _, c := range []struct {
		name string
		dial DialFunc
		want error
	}{
		{"permanent", func(context.Context, int64) (Conn, error) { return nil, Permanent(forbidden) }, forbidden},
		{"refused by dial", func(context.Context, int64) (Conn, error) { return nil, refusal }, refusal},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, _, err := Follow(t.Context(), c.dial, 0, &deck{}, FollowOptions{})
			if err != c.want {
				t.Fatalf("got %v, want %v itself", err, c.want)
			}
		})
	}
	if Permanent(nil) != nil {
		t.Error("nil became an error")
	}
}

func TestFollowEndsAtARefusalAndRetriesOneThatSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &station{}
		s.serve = func(_ context.Context, conn Conn, _ int64) {
			_ = Refuse(conn, wire.StreamError{Code: "c", Message: "m", Retry: s.dials < 4})
		}
		_, _, err := Follow(t.Context(), s.dial, 0, &deck{}, FollowOptions{})
		s.wait()
		var refusal *wire.StreamError
		if !errors.As(err, &refusal) || refusal.Code != "c" || s.dials != 4 {
			t.Fatalf("%v after %d dials", err, s.dials)
		}
	})
}

func TestFollowEndsWhenTheSinkFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &station{tape: newTape(rand.New(rand.NewPCG(3, 3)), 50)}
		broken := errors.New("broken pipe")
		sink := SinkFunc(func(context.Context, Record) error { return broken })
		next, _, err := Follow(t.Context(), s.dial, 5, sink, FollowOptions{})
		s.wait()
		var failed *SinkError
		if !errors.As(err, &failed) || !errors.Is(err, broken) || next != 5 || s.dials != 1 {
			t.Fatalf("%d, %v after %d dials", next, err, s.dials)
		}
	})
}

func TestFollowGivesUpAStreamThatKeepsBreakingTheRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &station{serve: func(_ context.Context, conn Conn, offset int64) {
			_ = wire.WriteFrame(conn, wire.Frame{Type: wire.FrameData, Stream: 1, Offset: offset + 1, Payload: []byte("x")})
			_, _ = conn.Read(make([]byte, 1))
			conn.Close()
		}}
		sink := &deck{}
		_, _, err := Follow(t.Context(), s.dial, 0, sink, FollowOptions{})
		s.wait()
		if !errors.Is(err, ErrProtocol) || s.dials != maxViolations || len(sink.records) != 0 {
			t.Fatalf("%v after %d dials, %d records", err, s.dials, len(sink.records))
		}
	})
}

func TestFollowEndsWithItsContextWhateverItWaitsFor(t *testing.T) {
	gone := errors.New("user pressed ctrl-c")
	for name, dial := range map[string]func(*station) DialFunc{
		"for a dial": func(*station) DialFunc {
			return func(ctx context.Context, _ int64) (Conn, error) { <-ctx.Done(); return nil, ctx.Err() }
		},
		"for a byte": func(s *station) DialFunc {
			s.tape.pause = func(i int) time.Duration { return time.Duration(i) * time.Hour }
			return s.dial
		},
		"for a retry": func(*station) DialFunc {
			return func(context.Context, int64) (Conn, error) { return nil, errors.New("refused") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &station{tape: newTape(rand.New(rand.NewPCG(4, 4)), 5)}
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(1234*time.Millisecond, func() { cancel(gone) })
				began := time.Now()
				_, _, err := Follow(ctx, dial(s), 0, &deck{}, FollowOptions{})
				if err != gone || time.Since(began) != 1234*time.Millisecond {
					t.Fatalf("%v after %v", err, time.Since(began))
				}
				s.wait()
			})
		})
	}
}

func TestFollowDialsAgainSoonAfterALinkThatBroughtBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded := newTape(rand.New(rand.NewPCG(9, 9)), 200)
		recorded.pause = func(int) time.Duration { return 10 * time.Millisecond } // a frame a record
		s := &station{tape: recorded}
		s.wrap = func(c net.Conn) net.Conn { return &frail{Conn: c, budget: 200} }
		began := time.Now()
		sink := &deck{}
		if _, _, err := Follow(t.Context(), s.dial, 0, sink, FollowOptions{}); err != nil {
			t.Fatal(err)
		}
		s.wait()
		sink.check(t, recorded, 0)
		if most := time.Duration(s.dials) * (backoffFirst + 200*time.Millisecond); s.dials < 20 || time.Since(began) > most {
			t.Errorf("%d links took %v, want less than %v", s.dials, time.Since(began), most)
		}
	})
}
