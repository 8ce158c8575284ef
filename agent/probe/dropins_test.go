package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// bench is a directory of probes whose runs are functions.
type bench struct {
	*Dropins
	t   *testing.T
	log bytes.Buffer

	mu     sync.Mutex // guards what follows
	behave map[string]func(ctx context.Context) Run
	began  []string
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, behave: map[string]func(ctx context.Context) Run{}}
	b.Dropins = &Dropins{Dir: t.TempDir(), Timeout: 5 * time.Second, Devices: []string{"gpu0"}, Log: slog.New(slog.NewTextHandler(&b.log, nil)),
		Run: func(ctx context.Context, path string, _ int) Run {
			b.mu.Lock()
			name := filepath.Base(path)
			b.began = append(b.began, name)
			f := b.behave[name]
			b.mu.Unlock()
			return f(ctx)
		}}
	return b
}

func (b *bench) set(name string, f func(ctx context.Context) Run) {
	b.t.Helper()
	b.behave[name] = f
	if err := os.WriteFile(filepath.Join(b.Dir, name), nil, 0o700); err != nil {
		b.t.Fatal(err)
	}
}

func says(text string) func(context.Context) Run {
	return func(context.Context) Run { return Run{Output: []byte(text)} }
}

func fails(context.Context) Run { return Run{Err: errors.New("exit status 3: no driver")} }

// hangs ends when it is ended.
func hangs(ctx context.Context) Run {
	<-ctx.Done()
	return Run{Err: context.Cause(ctx)}
}

// pass returns the labels as "device/key=value", sorted.
func (b *bench) pass() string {
	b.t.Helper()
	labels, err := b.Pass(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	var all []string
	for device, set := range labels {
		for key, value := range set {
			all = append(all, fmt.Sprintf("%s/%s=%s", device, key, value))
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func (b *bench) want(want string) {
	b.t.Helper()
	if got := b.pass(); got != want {
		b.t.Errorf("got %q, want %q", got, want)
	}
}

func TestAFailingProbeKeepsItsWordAndTakesNobodyElses(t *testing.T) {
	b := newBench(t)
	b.set("10-a", says(`{"a":1,"gpu0.a":2}`))
	b.set("20-b", says(`{"b":1}`))
	b.want("/a=1 /b=1 gpu0/a=2")
	for what, run := range map[string]func(context.Context) Run{
		"failure": fails, "no output": says(""), "bad output": says("{"), "too much": says(strings.Repeat(" ", OutputLimit-1) + "{}"),
	} {
		b.set("10-a", run)
		b.set("20-b", says(`{"b":"`+what+`"}`))
		b.want("/a=1 /b=" + what + " gpu0/a=2")
	}
	b.set("10-a", says("{}")) // it works, and knows nothing
	b.set("20-b", says(`{"b":2}`))
	b.want("/b=2")
	if err := os.Remove(filepath.Join(b.Dir, "20-b")); err != nil {
		t.Fatal(err)
	}
	b.set("10-a", fails)
	b.want("")
}

func TestTheWordOfAnEarlierLifeStandsWhileItsProbeFails(t *testing.T) {
	b := newBench(t)
	b.Words = map[string]Word{"10-a": {"a": "1"}, "20-gone": {"b": "1"}}
	b.set("10-a", fails)
	b.want("/a=1")
}

func TestWordsAreReplacedAndNotWrittenTo(t *testing.T) {
	b := newBench(t)
	b.set("a", says(`{"a":1}`))
	b.pass()
	first := b.Words
	b.pass()
	if b.Words["a"] == nil || fmt.Sprintf("%p", first) != fmt.Sprintf("%p", b.Words) {
		t.Error("equal words were replaced")
	}
	b.set("a", says(`{"a":2}`))
	b.pass()
	if !maps.Equal(first["a"], Word{"a": "1"}) || b.Words["a"]["a"] != "2" {
		t.Errorf("first %v, then %v", first, b.Words)
	}
}

func TestOnlyExecutablesAreRunInTheOrderOfTheirNames(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"b", "a", "c"} {
		b.set(name, says("{}"))
	}
	for name, mode := range map[string]os.FileMode{"README": 0o600, "d": os.ModeDir | 0o700} {
		if mode.IsDir() {
			if err := os.Mkdir(filepath.Join(b.Dir, name), 0o700); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(filepath.Join(b.Dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	b.set("target", says("{}"))
	if err := errors.Join(os.Symlink("target", filepath.Join(b.Dir, "link")), os.Symlink("nowhere", filepath.Join(b.Dir, "loose"))); err != nil {
		t.Fatal(err)
	}
	b.behave["link"] = says("{}")
	b.pass()
	if got := strings.Join(b.began, " "); got != "a b c link target" {
		t.Errorf("ran %s", got)
	}
}

func TestAMissingDirectoryIsFineAndAnUnreadableOneChangesNothing(t *testing.T) {
	b := newBench(t)
	b.set("a", says(`{"a":1}`))
	b.want("/a=1")
	dir := b.Dir
	b.Dir = filepath.Join(dir, "a") // no directory
	b.want("/a=1")
	if !strings.Contains(b.log.String(), "probe directory not read") {
		t.Errorf("log %s", b.log.String())
	}
	b.Dir = filepath.Join(dir, "none")
	b.want("")
}

func TestAHungProbeCostsTheOthersOneSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.set("10-hung", says(`{"h":1}`))
		b.pass()
		for _, name := range []string{"10-hung", "20-hung", "30-hung"} {
			b.set(name, hangs)
		}
		start := time.Now()
		b.set("40-good", func(context.Context) Run {
			if at := time.Since(start); at != 3*time.Second {
				t.Errorf("its turn came after %v", at)
			}
			return Run{Output: []byte(`{"g":1}`)}
		})
		b.want("/g=1 /h=1")
		if took := time.Since(start); took != 7*time.Second { // the third began after 2 s
			t.Errorf("the pass took %v", took)
		}
	})
}

func TestAPassIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Timeout = time.Hour
		for n := range 40 {
			b.set(fmt.Sprintf("%02d", n), hangs)
		}
		start := time.Now()
		b.want("")
		if took := time.Since(start); took != PassLimit {
			t.Errorf("the pass took %v", took)
		}
		if n := len(b.began); n > 31 {
			t.Errorf("%d were begun", n)
		}
		b.set("00", says(`{"a":1}`))
		b.want("/a=1") // the first has a turn in each pass
	})
}

func TestAProbeThatCannotBeEndedIsNotRunTwiceAndStopsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		left := true
		b.set("10-stuck", says(`{"s":1}`))
		b.set("20-good", says(`{"g":1}`))
		b.pass()
		b.set("10-stuck", func(ctx context.Context) Run {
			return Run{Err: hangs(ctx).Err, Left: func() bool { return left }}
		})
		b.want("/g=1 /s=1")
		b.began = nil
		b.set("20-good", says(`{"g":2}`))
		start := time.Now()
		b.want("/g=2 /s=1")
		if took := time.Since(start); took != 0 || !slices.Equal(b.began, []string{"20-good"}) {
			t.Errorf("%v ran, in %v", b.began, took)
		}
		left = false
		b.set("10-stuck", says(`{"s":2}`))
		b.want("/g=2 /s=2")
	})
}

func TestAPassThatIsCutShortSaysNothing(t *testing.T) {
	b := newBench(t)
	b.set("a", hangs)
	b.Words = map[string]Word{"a": {"a": "1"}}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if labels, err := b.Pass(ctx); !errors.Is(err, context.Canceled) || labels != nil || len(b.Words) != 1 || b.log.Len() != 0 {
		t.Errorf("%v, %v, words %v, log %s", labels, err, b.Words, b.log.String())
	}
}

func TestANoticeIsLoggedOnce(t *testing.T) {
	b := newBench(t)
	b.set("a", fails)
	for range 3 {
		b.pass()
	}
	b.set("a", says(`{"x":{}}`))
	for range 3 {
		b.pass()
	}
	b.set("a", says(`{}`))
	b.pass()
	if log := b.log.String(); strings.Count(log, "no driver") != 1 || strings.Count(log, "nested") != 1 || strings.Count(log, "works again") != 1 {
		t.Errorf("log %s", log)
	}
}
