package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rcd/wire"
)

func TestDeadFirstAddressCostsUnder300ms(t *testing.T) {
	for name, dead := range map[string]dialFunc{"refuses": refuse, "swallows": swallow} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				n.put("a:1", dead)
				n.serve(t, "b:1", "c2", isAdmin)
				c, _ := n.client(t, Options{})
				begun := time.Now()
				role, err := c.Whoami(t.Context())
				if err != nil || role != "admin" {
					t.Fatalf("role %q, error %v", role, err)
				}
				within(t, begun, 300*time.Millisecond)
				begun = time.Now()
				if _, err := c.Whoami(t.Context()); err != nil {
					t.Fatal(err)
				}
				within(t, begun, 0)
				if got := n.dialled("a:1"); got != 1 {
					t.Fatalf("the dead node was dialled %d times, want once: the good one is remembered", got)
				}
			})
		})
	}
}

func TestStoppedNodeDoesNotHoldACall(t *testing.T) {
	for name, stopped := range map[string]func(*testing.T, *network){
		"silent after the request": func(t *testing.T, n *network) { n.serve(t, "a:1", "c1", hang) },
		"reads nothing":            func(t *testing.T, n *network) { n.put("a:1", mute) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				stopped(t, n)
				n.serve(t, "b:1", "c2", func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodGet {
						isAdmin(w, r)
					}
				})
				c, _ := n.client(t, Options{})
				begun := time.Now()
				if _, err := c.Whoami(t.Context()); err != nil {
					t.Fatal(err)
				}
				within(t, begun, 1500*time.Millisecond)

				c, _ = n.client(t, Options{})
				begun = time.Now()
				if err := c.Kill(t.Context(), "j-1", "ann"); err != nil {
					t.Fatal(err)
				}
				within(t, begun, 3*time.Second)
			})
		})
	}
}

func TestSlowAnswerOfTheOnlyLiveNodeIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		var asked atomic.Int32
		n.serve(t, "a:1", "c1", func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			time.Sleep(5 * time.Second) // looks for a leader
			isAdmin(w, r)
		})
		c, _ := n.client(t, Options{})
		if _, err := c.Whoami(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := asked.Load(); got != 1 {
			t.Fatalf("asked %d times, want once", got)
		}
	})
}

// ledger is a cluster in one handler: each request ID has one effect.
type ledger struct {
	mu      sync.Mutex
	effects map[string]int
	bodies  []string
	keys    []string
}

func (l *ledger) record(r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.effects == nil {
		l.effects = map[string]int{}
	}
	key := r.Header.Get(wire.HeaderRequestID)
	if l.effects[key] == 0 {
		l.effects[key]++
	}
	l.keys, l.bodies = append(l.keys, key), append(l.bodies, string(body))
}

func TestSubmitIsRepeatedUnderOneRequestID(t *testing.T) {
	lost := map[string]http.HandlerFunc{
		"no_leader":       func(w http.ResponseWriter, _ *http.Request) { answerError(w, 503, wire.CodeNoLeader) },
		"outcome_unknown": func(w http.ResponseWriter, _ *http.Request) { answerError(w, 504, wire.CodeOutcomeUnknown) },
		"halted":          func(w http.ResponseWriter, _ *http.Request) { answerError(w, 503, wire.CodeHalted) },
		"overloaded":      func(w http.ResponseWriter, _ *http.Request) { answerError(w, 503, wire.CodeOverloaded) },
		"dropped":         drop,
		"cut in the answer": func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(201)
			_, _ = io.WriteString(w, `{"id":"j-1"`)
			panic(http.ErrAbortHandler)
		},
		"proxy": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(502) },
	}
	for name, fail := range lost {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				var l ledger
				var asked atomic.Int32
				h := func(w http.ResponseWriter, r *http.Request) {
					l.record(r)
					if asked.Add(1) < 5 {
						fail(w, r)
						return
					}
					answerJSON(w, 201, wire.Job{ID: "j-1", State: "queued"})
				}
				n.serve(t, "a:1", "c1", h)
				n.serve(t, "b:1", "c2", h)
				c, _ := n.client(t, Options{Token: "secret"})
				job, err := c.Submit(t.Context(), SubmitOptions{DeviceID: "box:gpu0", Command: []string{"true"}, Submitter: "ann"})
				if err != nil || job.ID != "j-1" {
					t.Fatalf("job %v, error %v", job, err)
				}
				if len(l.effects) != 1 || len(l.keys) < 5 || l.keys[0] == "" {
					t.Fatalf("request IDs %q, want the same one in each of at least 5 tries", l.keys)
				}
				for _, body := range l.bodies {
					if body != l.bodies[0] || body == "" {
						t.Fatalf("bodies differ: %q", l.bodies)
					}
				}
			})
		})
	}
}

func TestRefusalIsNeverRepeated(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404, 409, 413, 422, 429, 500} {
		bubble(t, func(t *testing.T, n *network) {
			var asked atomic.Int32
			h := func(w http.ResponseWriter, _ *http.Request) {
				asked.Add(1)
				answerError(w, status, "some_code")
			}
			n.serve(t, "a:1", "c1", h)
			n.serve(t, "b:1", "c2", h)
			c, _ := n.client(t, Options{})
			_, err := c.Submit(t.Context(), SubmitOptions{Submitter: "ann"})
			wantCode(t, err, status, "some_code")
			if asked.Load() != 1 {
				t.Fatalf("status %d: asked %d times, want once", status, asked.Load())
			}
		})
	}
}

func TestOverloadedIsNotPassedAroundAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		var asked atomic.Int32
		h := func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) < 4 {
				answerError(w, 503, wire.CodeOverloaded)
				return
			}
			isAdmin(w, r)
		}
		for _, a := range []string{"a:1", "b:1", "c:1"} {
			n.serve(t, a, a, h)
		}
		c, _ := n.client(t, Options{})
		begun := time.Now()
		if _, err := c.Whoami(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took < 3*overloadedPause*3/4 {
			t.Fatalf("three tries at an overloaded leader within %v", took)
		}
	})
}

func TestOutageIsWaitedOutAndThenExplained(t *testing.T) {
	t.Run("comes back", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *network) {
			c, seen := n.client(t, Options{})
			go func() {
				time.Sleep(25 * time.Second)
				n.serve(t, "c:1", "c3", isAdmin)
			}()
			if _, err := c.Whoami(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := seen.all(); len(got) != 1 || got[0].Kind != NoticeWaiting || !strings.Contains(got[0].String(), "http://a:1: connection refused") {
				t.Fatalf("notices %v, want one that names the addresses", got)
			}
		})
	})
	t.Run("does not", func(t *testing.T) {
		bubble(t, func(t *testing.T, n *network) {
			n.put("b:1", swallow)
			n.serve(t, "c:1", "", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(502) })
			c, _ := n.client(t, Options{})
			begun := time.Now()
			_, err := c.Whoami(t.Context())
			within(t, begun, DefaultPatience)
			if !errors.Is(err, ErrUnreachable) || errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("error %v, want ErrUnreachable and no deadline of the caller's", err)
			}
			want := "unreachable: no controller answered within 30s\n" +
				"  http://a:1: connection refused\n" +
				"  http://b:1: no answer within 6s\n" +
				"  http://c:1: HTTP 502 from something that is no controller\n" +
				"Check that the controllers run (rcd serve) and that RC_CONTROLLER lists their --http addresses."
			if got := err.Error(); got != want {
				t.Fatalf("text\n%s\nwant\n%s", got, want)
			}
		})
	})
}

func TestOutageSaysWhetherAChangeMayHaveHappened(t *testing.T) {
	noLeader := func(w http.ResponseWriter, r *http.Request) { answerError(w, 503, wire.CodeNoLeader) }
	for name, tc := range map[string]struct {
		serve   http.HandlerFunc
		unknown bool
		code    string
	}{
		"refused by all":   {nil, false, "unreachable"},
		"no leader":        {noLeader, false, "no_leader"},
		"no leader for 5s": {slowly(noLeader), false, "no_leader"},
		"halted":           {func(w http.ResponseWriter, _ *http.Request) { answerError(w, 503, wire.CodeHalted) }, false, "halted"},
		"none, then lost":  {onceLost(slowly(noLeader)), true, "outcome_unknown"},
		"taken and lost":   {drop, true, "outcome_unknown"},
		"hangs":            {hang, true, "outcome_unknown"},
		"said to be so":    {func(w http.ResponseWriter, _ *http.Request) { answerError(w, 504, wire.CodeOutcomeUnknown) }, true, "outcome_unknown"},
		"overloaded again": {func(w http.ResponseWriter, _ *http.Request) { answerError(w, 503, wire.CodeOverloaded) }, false, "overloaded"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				if tc.serve != nil {
					n.serve(t, "b:1", "c2", tc.serve)
				}
				c, _ := n.client(t, Options{})
				err := c.Kill(t.Context(), "j-1", "ann")
				var outage *OutageError
				if !errors.As(err, &outage) || outage.Unknown != tc.unknown || outage.Code() != tc.code {
					t.Fatalf("error %v (unknown %v), want unknown %v with code %s", err, outage.Unknown, tc.unknown, tc.code)
				}
				if outage.RequestID == "" || (tc.unknown && !strings.Contains(err.Error(), outage.RequestID)) {
					t.Fatalf("request ID %q is not in %q", outage.RequestID, err)
				}
			})
		})
	}
}

// slowly is a node that looks for a leader before it answers. The patience of a
// call ends in the middle of that.
func slowly(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(5 * time.Second)
		h(w, r)
	}
}

// onceLost drops the first request and hands the others on.
func onceLost(h http.HandlerFunc) http.HandlerFunc {
	var lost atomic.Bool
	return func(w http.ResponseWriter, r *http.Request) {
		if lost.CompareAndSwap(false, true) {
			drop(w, r)
			return
		}
		h(w, r)
	}
}

func TestAChangeUnderWayWhenPatienceEndsIsWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		begun := time.Now()
		n.serve(t, "a:1", "c1", func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(5 * time.Second)
			if time.Since(begun) < DefaultPatience {
				answerError(w, 503, wire.CodeNoLeader)
			}
		})
		c, _ := n.client(t, Options{Controllers: []string{"a:1"}})
		if err := c.Kill(t.Context(), "j-1", "ann"); err != nil {
			t.Fatal(err)
		}
		within(t, begun, DefaultPatience+answerTimeout)
	})
}

func TestCallEndsWithItsContext(t *testing.T) {
	for name, put := range map[string]dialFunc{"refused": refuse, "swallowed": swallow, "mute": mute} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				for _, a := range []string{"a:1", "b:1", "c:1"} {
					n.put(a, put)
				}
				c, _ := n.client(t, Options{})
				ctx, cancel := context.WithTimeout(t.Context(), 1234*time.Millisecond)
				defer cancel()
				begun := time.Now()
				_, err := c.Whoami(ctx)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("error %v, want the context's", err)
				}
				within(t, begun, 1234*time.Millisecond)
			})
		})
	}
}

func TestBodyThatStopsInTheMiddleIsGivenUp(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		var asked atomic.Int32
		n.serve(t, "a:1", "c1", func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) > 1 {
				isAdmin(w, r)
				return
			}
			_, _ = io.WriteString(w, `{"ro`)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		c, _ := n.client(t, Options{Controllers: []string{"a:1"}})
		begun := time.Now()
		if role, err := c.Whoami(t.Context()); err != nil || role != "admin" {
			t.Fatalf("role %q, error %v", role, err)
		}
		within(t, begun, 6*time.Second)
	})
}

func TestManyCallsAtOnceShareAClient(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.put("a:1", swallow)
		n.serve(t, "b:1", "c2", isAdmin)
		c, _ := n.client(t, Options{})
		for range 50 {
			go func() {
				if _, err := c.Whoami(t.Context()); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		time.Sleep(time.Second)
	})
}

func TestAHaltedNodeIsPassedOverAndNamesTheOutageOnlyAlone(t *testing.T) {
	halted := func(w http.ResponseWriter, _ *http.Request) { answerError(w, 503, wire.CodeHalted) }
	bubble(t, func(t *testing.T, n *network) {
		n.serve(t, "a:1", "c1", halted)
		n.serve(t, "b:1", "c2", isAdmin)
		c, _ := n.client(t, Options{Notify: func(n Notice) { t.Errorf("the user is told: %s", n) }})
		begun := time.Now()
		if _, err := c.Whoami(t.Context()); err != nil {
			t.Fatal(err)
		}
		within(t, begun, 100*time.Millisecond)
	})
	heading := map[string]string{
		wire.CodeHalted:   "halted: every controller that answers has halted\n",
		wire.CodeNoLeader: "no_leader: no controller that answers knows a leader; asked for 30s\n",
	}
	for code, other := range map[string]http.HandlerFunc{
		wire.CodeHalted:   halted,
		wire.CodeNoLeader: func(w http.ResponseWriter, _ *http.Request) { answerError(w, 503, wire.CodeNoLeader) },
	} {
		bubble(t, func(t *testing.T, n *network) {
			n.serve(t, "a:1", "c1", halted)
			n.serve(t, "b:1", "c2", other)
			n.serve(t, "c:1", "c3", halted)
			c, _ := n.client(t, Options{})
			_, err := c.Whoami(t.Context())
			var outage *OutageError
			if !errors.As(err, &outage) || outage.Code() != code {
				t.Fatalf("error %v, want %s", err, code)
			}
			if !strings.HasPrefix(err.Error(), heading[code]) {
				t.Errorf("%s: %v", code, err)
			}
		})
	}
}
