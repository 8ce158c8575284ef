package shim

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func awaitLimit(t *testing.T, h *Handle, want time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		got, ok := h.Limit()
		if ok && got == want {
			return
		}
		if time.Now().After(deadline) || h.Status().Phase == Ended {
			t.Fatalf("limit %v, %v, %+v; want %v", got, ok, h.Status(), want)
		}
	}
}

func ranFor(r Result) time.Duration { return r.FinishedAt.Sub(r.StartedAt) }

func TestALengthenedJobRunsToItsNewLimit(t *testing.T) {
	for _, kind := range []Kind{KindJob, KindHold} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			cfg := job(t, "sleep 60")
			cfg.Spec.Kind, cfg.Spec.MaxRuntime = kind, 2500*time.Millisecond
			if kind == KindHold {
				cfg.Spec.Command = nil
			}
			h := start(t, cfg)
			awaitLimit(t, h, 2500*time.Millisecond)
			time.Sleep(time.Until(h.Status().StartedAt.Add(2 * time.Second)))
			h.Extend(3 * time.Second)
			h.Extend(2 * time.Second) // late, and shorter
			awaitLimit(t, h, 3*time.Second)
			r := await(t, h)
			wantEnd(t, r, Killed, 143, "max_runtime exceeded (3s)")
			if ran := ranFor(r); ran < 2950*time.Millisecond || ran > 4500*time.Millisecond {
				t.Errorf("ran for %v: the limit counts from the start", ran)
			}
		})
	}
}

// TestALimitIsOnlyLengthened speaks to the shim itself, as any agent may.
func TestALimitIsOnlyLengthened(t *testing.T) {
	cfg := job(t, "sleep 60")
	cfg.Spec.MaxRuntime = time.Hour
	h := start(t, cfg)
	conn, err := dial(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, d := range []time.Duration{3 * time.Hour, time.Second, 0, -1, 2 * time.Hour, 3 * time.Hour} {
		if err := send(conn, message{Type: typeExtend, Extend: &extendBody{MaxRuntime: d}}); err != nil {
			t.Fatal(err)
		}
	}
	for range 200 {
		h.takeLimit()
		if got, _ := h.Limit(); got == 3*time.Hour {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	// The kill goes after the others on the same connection, so they were heard.
	if err := send(conn, message{Type: typeKill, Kill: &killBody{Reason: "enough"}}); err != nil {
		t.Fatal(err)
	}
	wantEnd(t, await(t, h), Killed, 143, "enough")
	h.takeLimit()
	if got, ok := h.Limit(); !ok || got != 3*time.Hour {
		t.Errorf("limit %v, %v", got, ok)
	}
}

func TestAJobWithoutALimitIsGivenNone(t *testing.T) {
	h := start(t, job(t, "sleep 60"))
	awaitLimit(t, h, 0)
	h.Extend(50 * time.Millisecond)
	conn, err := dial(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := send(conn, message{Type: typeExtend, Extend: &extendBody{MaxRuntime: 50 * time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond)
	if got, _ := h.Limit(); got != 0 || h.Status().Phase != Running {
		t.Errorf("limit %v, %+v", got, h.Status())
	}
}

func TestALengthenedLimitIsKnownToTheNextAgent(t *testing.T) {
	cfg := job(t, "sleep 60")
	cfg.Spec.MaxRuntime = time.Hour
	h := start(t, cfg)
	awaitLimit(t, h, time.Hour)
	h.Extend(2 * time.Hour)
	awaitLimit(t, h, 2*time.Hour)
	letGo(h)
	next, err := Adopt(cfg.Dir, cfg.Log)
	if err != nil {
		t.Fatal(err)
	}
	defer finish(t, next)
	if got, ok := next.Limit(); !ok || got != 2*time.Hour {
		t.Errorf("limit %v, %v", got, ok)
	}
	next.Extend(3 * time.Hour)
	awaitLimit(t, next, 3*time.Hour)
}

// TestAnExtensionRacedWithTheLimitHoldsOrIsNotTold: a limit that was said to be
// taken is lived up to, and one that came too late never shows.
func TestAnExtensionRacedWithTheLimitHoldsOrIsNotTold(t *testing.T) {
	t.Parallel()
	const short, long = 400 * time.Millisecond, time.Second
	for i := range 8 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			cfg := job(t, "sleep 60")
			cfg.Spec.MaxRuntime = short
			h := start(t, cfg)
			time.Sleep(time.Until(h.Status().StartedAt.Add(short + time.Duration(i-4)*2*time.Millisecond)))
			h.Extend(long)
			r := await(t, h)
			h.takeLimit()
			limit, _ := h.Limit()
			wantEnd(t, r, Killed, 143, fmt.Sprintf("max_runtime exceeded (%s)", limit))
			if ran := ranFor(r); ran < limit-50*time.Millisecond {
				t.Errorf("ran for %v under a limit of %v", ran, limit)
			}
		})
	}
}

// TestAShimOfAnEarlierReleaseIsNotTold: it would hang up. Its job goes on, and a
// kill is taken.
func TestAShimOfAnEarlierReleaseIsNotTold(t *testing.T) {
	t.Parallel()
	cfg := job(t, "sleep 60")
	cfg.Spec.MaxRuntime = time.Hour
	h := start(t, cfg)
	letGo(h)
	if err := os.Remove(filepath.Join(cfg.Dir, limitName)); err != nil {
		t.Fatal(err)
	}
	next, err := Adopt(cfg.Dir, cfg.Log)
	if err != nil {
		t.Fatal(err)
	}
	defer finish(t, next)
	next.Extend(2 * time.Hour)
	near, far := net.Pipe()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); next.sendOrders(ctx, near) }()
	if m, err := receive(far); err != nil || m.Type != typePing {
		t.Errorf("it was sent a message of type %d, %v", m.Type, err)
	}
	cancel()
	<-done
	if _, ok := next.Limit(); ok || next.Status().Phase != Running {
		t.Errorf("limit known %v, %+v", ok, next.Status())
	}
	next.Kill("cancelled")
	wantEnd(t, await(t, next), Killed, 143, "cancelled")
}
