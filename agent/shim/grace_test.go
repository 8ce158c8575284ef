package shim

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAJobIsWarnedOnceBeforeItsLimitAndItsGroupWithIt(t *testing.T) {
	t.Parallel()
	cfg := job(t, `trap 'echo warned' USR1; sleep 60 & echo ready; wait $!; wait $!; echo child $?; while :; do sleep 0.05; done`)
	cfg.Spec.MaxRuntime = 5 * time.Second
	cfg.Spec.Env = append(cfg.Spec.Env, "RC_GRACE_SIGNAL=USR1@2s")
	h := start(t, cfg)
	r := await(t, h)
	wantEnd(t, r, Killed, 143, "max_runtime exceeded (5s)")
	_, stdout, _ := output(t, h)
	if stdout != "ready\nwarned\nchild 138\n" {
		t.Errorf("output %q", stdout)
	}
}

func TestAJobIsNotWarnedWhileItIsBeingKilled(t *testing.T) {
	t.Parallel()
	cfg := job(t, `trap 'echo term' TERM; trap 'echo warned' USR1; echo ready; while :; do sleep 0.05; done`)
	cfg.Spec.MaxRuntime, cfg.Spec.Grace = time.Hour, 3*time.Second
	cfg.Spec.Env = append(cfg.Spec.Env, "RC_GRACE_SIGNAL=USR1@59m58s") // 2 s after the start
	h := start(t, cfg)
	awaitOutput(t, h, 6)
	h.Kill("enough")
	wantEnd(t, await(t, h), Killed, 137, "enough")
	if _, stdout, _ := output(t, h); !strings.HasPrefix(stdout, "ready\nterm\n") || strings.Contains(stdout, "warned") {
		t.Errorf("output %q", stdout)
	}
}

// fires tells after how long the warning comes, false if not within a year.
func fires(w *warning) (time.Duration, bool) {
	began := time.Now()
	select {
	case <-w.timer.C:
		return time.Since(began), true
	case <-time.After(365 * 24 * time.Hour):
		return 0, false
	}
}

func TestTheWarningComesSoLongBeforeTheLimitAsThatIsThen(t *testing.T) {
	spec := func(wish string) Spec { return Spec{Env: []string{"A=b", "RC_GRACE_SIGNAL=" + wish}} }
	for name, c := range map[string]struct {
		spec   Spec
		limit  time.Duration
		longer time.Duration // asked for 10 s after the start; 0: not
		want   time.Duration // -1: never
	}{
		"as a rule":                   {spec("TERM"), time.Hour, 0, time.Hour - 30*time.Second},
		"limit shorter than the time": {spec("TERM@1h"), time.Minute, 0, 0},
		"limit lengthened":            {spec("USR1@1m"), time.Minute + 20*time.Second, time.Hour, time.Hour - time.Minute},
		"no limit":                    {spec("TERM"), 0, 0, -1},
		"nothing asked for":           {Spec{Env: []string{"A=b"}}, time.Hour, 0, -1},
		"an empty wish":               {spec(""), time.Hour, 0, -1},
		"nonsense, which is refused":  {spec("KILL"), time.Hour, 0, -1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &limit{max: c.limit}
				defer l.start().Stop()
				w := newWarning(c.spec, l, slog.New(slog.DiscardHandler))
				defer w.timer.Stop()
				var waited time.Duration
				if c.longer > 0 {
					waited = 10 * time.Second
					time.Sleep(waited)
					l.max = c.longer
					w.aim(l)
				}
				got, ok := fires(w)
				if ok != (c.want >= 0) || (ok && waited+got != c.want) {
					t.Errorf("after %v, %v; want %v", waited+got, ok, c.want)
				}
				// Once: whatever becomes of the limit afterwards.
				w.sent = true
				l.max *= 2
				w.aim(l)
				if got, ok := fires(w); ok && c.want >= 0 {
					t.Errorf("again after %v", got)
				}
			})
		})
	}
}
