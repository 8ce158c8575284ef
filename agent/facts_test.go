package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"rcd/wire"
)

// bench is a keeper in virtual time with what it tells.
type bench struct {
	*keeper
	mu   sync.Mutex
	now  Labels
	err  error
	told []string // "second: label of gpu0"
}

func (b *bench) say(l Labels, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now, b.err = l, err
}

func (b *bench) source(context.Context) (Labels, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now, b.err
}

func host(kv ...string) Labels {
	set := map[string]string{}
	for i := 0; i < len(kv); i += 2 {
		set[kv[i]] = kv[i+1]
	}
	return Labels{"": set}
}

// keeping runs a keeper with one source that is asked each second, and others.
func keeping(t *testing.T, f func(b *bench), others ...Source) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		b := &bench{now: host("mem_free", "100G", "kernel", "6.1")}
		sources := append([]Source{{Name: "one", Every: time.Second, Timeout: time.Second, Detect: b.source}}, others...)
		told := make(chan struct{}, 100)
		b.keeper = newKeeper([]Device{{Name: "gpu0"}, {Name: "gpu1"}}, sources, slog.New(slog.DiscardHandler), func() {
			told <- struct{}{}
		})
		ctx, cancel := context.WithCancel(context.Background())
		var wait sync.WaitGroup
		wait.Go(func() { b.run(ctx) })
		wait.Go(func() {
			for {
				select {
				case <-told:
					var parts []string
					for _, l := range b.detected("gpu0") {
						parts = append(parts, l.Key+"="+l.Value)
					}
					b.mu.Lock()
					b.told = append(b.told, fmt.Sprintf("%d: %s", int(time.Since(start).Seconds()), strings.Join(parts, " ")))
					b.mu.Unlock()
				case <-ctx.Done():
					return
				}
			}
		})
		time.Sleep(100 * time.Millisecond)
		f(b)
		cancel()
		wait.Wait()
		time.Sleep(10 * time.Minute) // what was left behind ends some day
	})
}

func (b *bench) want(t *testing.T, want ...string) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Equal(b.told, want) {
		t.Errorf("told %q, want %q", b.told, want)
	}
}

func TestVolatileLabelsAreToldAtMostEveryFiveSecondsAndTheLastIsNotLost(t *testing.T) {
	keeping(t, func(b *bench) {
		for n := range 8 { // seconds 1 to 8
			b.say(host("mem_free", fmt.Sprintf("%dG", 90-10*n), "kernel", "6.1"), nil)
			time.Sleep(time.Second)
		}
		time.Sleep(time.Minute)
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.told) != 3 || !strings.HasPrefix(b.told[1], "5: ") || b.told[2] != "10: kernel=6.1 mem_free=20G" {
			t.Errorf("told %q", b.told)
		}
	})
}

func TestAChangeThatHadToWaitIsToldInItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper([]Device{{Name: "gpu0"}}, []Source{{}}, slog.New(slog.DiscardHandler), func() {})
		free := func() string { return k.detected("gpu0")[0].Value }
		k.hear(k.sources[0], host("mem_free", "100G"), nil)
		time.Sleep(2 * time.Second)
		k.hear(k.sources[0], host("mem_free", "50G"), nil)
		time.Sleep(2900 * time.Millisecond)
		if got := free(); got != "100G" {
			t.Errorf("told %s after 4.9 s", got)
		}
		time.Sleep(200 * time.Millisecond) // nobody has said anything since
		if got := free(); got != "50G" {
			t.Errorf("told %s after 5.1 s", got)
		}
	})
}

func TestOtherLabelsAreToldAtOnce(t *testing.T) {
	keeping(t, func(b *bench) {
		b.say(host("mem_free", "50G", "kernel", "6.1"), nil)
		time.Sleep(2 * time.Second)
		b.say(host("mem_free", "40G", "kernel", "6.2"), nil)
		time.Sleep(time.Second)
		b.say(host("kernel", "6.2"), nil) // gone
		time.Sleep(time.Minute)
		b.want(t, "0: kernel=6.1 mem_free=100G", "3: kernel=6.2 mem_free=40G", "4: kernel=6.2")
	})
}

func TestWhatGoesBackOrFluttersIsNotTold(t *testing.T) {
	keeping(t, func(b *bench) {
		b.say(host("mem_free", "50G", "kernel", "6.1"), nil)
		time.Sleep(2 * time.Second)
		for range 200 {
			b.say(host("mem_free", "100.2G", "kernel", "6.1"), nil)
			time.Sleep(time.Second)
			b.say(host("mem_free", "101.2G", "kernel", "6.1"), nil)
			time.Sleep(time.Second)
		}
		b.want(t, "0: kernel=6.1 mem_free=100G")
	})
}

func TestAFailingSourceKeepsItsLastWord(t *testing.T) {
	keeping(t, func(b *bench) {
		b.say(nil, errors.New("no driver"))
		time.Sleep(time.Minute)
		b.want(t, "0: kernel=6.1 mem_free=100G")
		b.say(Labels{}, nil) // it works, and has nothing to say
		time.Sleep(2 * time.Second)
		if got := b.detected("gpu0"); got == nil || len(got) != 0 {
			t.Errorf("detected %v", got)
		}
	})
}

func TestAHungSourceHoldsUpNobody(t *testing.T) {
	var calls atomic.Int32
	keeping(t, func(b *bench) {
		time.Sleep(4 * time.Second) // its deadline is over, the others are known
		b.say(host("kernel", "6.2"), nil)
		time.Sleep(time.Minute)
		b.want(t, "3: kernel=6.1 mem_free=100G", "5: kernel=6.2")
		if n := calls.Load(); n != 1 {
			t.Errorf("%d calls on top of each other", n)
		}
	}, Source{Name: "hung", Every: time.Second, Timeout: 3 * time.Second, Detect: func(context.Context) (Labels, error) {
		calls.Add(1)
		time.Sleep(5 * time.Minute)
		return host("kernel", "stale"), nil
	}})
}

func TestALaterSourceAndADevicesOwnWordCount(t *testing.T) {
	keeping(t, func(b *bench) {
		want := wire.Facts{Labels: []wire.DeviceFacts{
			{Name: "gpu0", Detected: []wire.LabelKV{{Key: "kernel", Value: "mine"}, {Key: "mem_free", Value: "100G"}}},
			{Name: "gpu1", Detected: []wire.LabelKV{{Key: "kernel", Value: "later"}, {Key: "mem_free", Value: "100G"}}},
		}}
		if got := b.facts(); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("facts %v, want %v", got, want)
		}
	}, Source{Name: "two", Every: time.Second, Timeout: time.Second, Detect: func(context.Context) (Labels, error) {
		return Labels{"": {"kernel": "later"}, "gpu0": {"kernel": "mine"}, "gpu9": {"kernel": "nobody's"}}, nil
	}})
}

func TestRegistrationKeepsStoredLabelsWhileNoneAreKnown(t *testing.T) {
	c := newControl(t)
	a := newTestAgent(t, testConfig(dataDir(t), c))
	if d := a.Hello().Devices[0]; !d.KeepDetected || d.Detected != nil {
		t.Errorf("before any fact is known: %+v", d)
	}
	a.observe()
	d := a.Hello().Devices[1]
	var keys []string
	for _, l := range d.Detected {
		keys = append(keys, l.Key)
	}
	if want := []string{"arch", "cpus", "disk_free_bytes", "kernel", "mem_free", "mem_total", "mem_total_bytes", "os"}; d.KeepDetected || !slices.Equal(keys, want) {
		t.Errorf("then: %+v", d)
	}
	if f := a.Facts(); len(f.Labels) != 2 || len(f.Sheets) != 0 {
		t.Errorf("facts %+v", f)
	}
}

func TestFactsOfThisMachineReachTheLeader(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	config.SheetDir = t.TempDir()
	if err := os.WriteFile(filepath.Join(config.SheetDir, "host.md"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	startAgent(t, config)
	eventually(t, "labels and sheet", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		labels, sheet := false, false
		for _, f := range c.facts {
			labels = labels || len(f.Labels) == 2 && len(f.Labels[0].Detected) >= 6
			sheet = sheet || slices.Contains(f.Sheets, wire.SheetText{Body: "hello"})
		}
		return labels && sheet
	})
}
