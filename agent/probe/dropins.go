package probe

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// OutputLimit bounds what one probe may print, in bytes.
	OutputLimit = 64 << 10
	// PassLimit bounds a whole pass. What has not ended by then has failed.
	PassLimit = 30 * time.Second
	// nextAfter is how long a probe has the host to itself. One that takes longer
	// goes on beside the next, so that one that hangs costs the others no more.
	nextAfter = time.Second
	// maxProbes bounds the executables of a directory.
	maxProbes = 256
)

// errStuck is why a probe is not run: it cannot be ended, and must not pile up.
var errStuck = errors.New("what it started in an earlier pass cannot be ended, so it is not run again before that is gone")

// Run is what came of one execution of a probe.
type Run struct {
	Output []byte // what it printed, OutputLimit bytes and one more at most
	Err    error  // why the output does not count
	// Left reports whether something of it is still there, from any goroutine.
	// nil: everything has ended.
	Left func() bool
}

// Dropins are the probes of one directory. The fields are set before the first
// pass; one pass runs at a time.
type Dropins struct {
	Dir     string
	Timeout time.Duration // of one probe
	Devices []string      // declared names
	// Run executes the program at path and ends all of it when it has ended
	// itself or ctx does, whose cause is the error then. It returns within
	// seconds of that whatever becomes of the program. It may be called
	// concurrently.
	Run func(ctx context.Context, path string, limit int) Run
	Log *slog.Logger
	// Words is what each probe said when it last worked, by file name. A pass
	// replaces the map when it differs and changes nothing in one that was
	// replaced.
	Words map[string]Word

	stuck map[string]func() bool // what a probe has left behind
	said  map[string]string      // what was logged of a probe, "" for nothing
}

// Pass runs every probe once, in the order of names, and returns the labels by
// device and key; device "" stands for every device of the host. A probe that
// fails keeps its last word; one that is not there any more has none. A
// directory that is missing holds no probe, and one that cannot be read leaves
// all words as they are. The only error is ctx's.
func (d *Dropins) Pass(ctx context.Context) (map[string]map[string]string, error) {
	names, err := d.list()
	if err != nil {
		d.say("", "probe directory not read; all labels of probes stand: "+err.Error())
		return d.Labels(), nil
	}
	d.say("", "")
	results := d.runAll(ctx, names)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	words := make(map[string]Word, len(names))
	for _, name := range names {
		facts, dropped, err := results[name].facts(d.Devices)
		if err == nil {
			words[name] = facts
		} else if last, ok := d.Words[name]; ok {
			words[name] = last
		}
		switch {
		case err != nil:
			d.say(name, "probe failed; what it said last stands: "+err.Error())
		case len(dropped) > 0:
			d.say(name, "a part of what the probe said is left out: "+listed(dropped))
		default:
			d.say(name, "")
		}
	}
	for name := range d.said {
		if _, there := results[name]; !there && name != "" {
			delete(d.said, name)
		}
	}
	if !maps.EqualFunc(words, d.Words, maps.Equal[Word, Word]) {
		d.Words = words
	}
	return d.Labels(), nil
}

// list returns the names of the executables, sorted.
func (d *Dropins) list() ([]string, error) {
	entries, err := os.ReadDir(d.Dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list probes: %w", err)
	}
	var names []string
	for _, e := range entries {
		info, err := os.Stat(filepath.Join(d.Dir, e.Name()))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("look at probe: %w", err)
		}
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		if len(names) == maxProbes {
			d.Log.Warn("too many probes; the rest is not run", "dir", d.Dir, "limit", maxProbes, "first_left_out", e.Name())
			break
		}
		names = append(names, e.Name())
	}
	return names, nil
}

// ended is the end of one probe of a pass.
type ended struct {
	name string
	run  Run
}

// runAll runs the probes and returns what came of each.
func (d *Dropins) runAll(ctx context.Context, names []string) map[string]Run {
	ctx, cancel := context.WithTimeoutCause(ctx, PassLimit, fmt.Errorf("the pass over all probes may take %v", PassLimit))
	defer cancel()
	results := make(map[string]Run, len(names))
	ends := make(chan ended, len(names))
	running := 0
	take := func(e ended) {
		running--
		if results[e.name] = e.run; e.run.Left != nil {
			if d.stuck == nil {
				d.stuck = map[string]func() bool{}
			}
			d.stuck[e.name] = e.run.Left
		}
	}
	maps.DeleteFunc(d.stuck, func(_ string, left func() bool) bool { return !left() })
	for _, name := range names {
		if d.stuck[name] != nil {
			results[name] = Run{Err: errStuck}
			continue
		}
		if ctx.Err() != nil {
			results[name] = Run{Err: context.Cause(ctx)}
			continue
		}
		running++
		go func() {
			ctx, cancel := context.WithTimeoutCause(ctx, d.Timeout, fmt.Errorf("it did not end within %v", d.Timeout))
			defer cancel()
			ends <- ended{name, d.Run(ctx, filepath.Join(d.Dir, name), OutputLimit)}
		}()
		for next := time.After(nextAfter); next != nil; {
			select {
			case e := <-ends:
				if take(e); e.name == name {
					next = nil
				}
			case <-next:
				next = nil
			case <-ctx.Done():
				next = nil
			}
		}
	}
	for running > 0 {
		take(<-ends)
	}
	return results
}

// say logs something about a probe, "" for the directory, unless it is what was
// said last.
func (d *Dropins) say(name, text string) {
	if d.said == nil {
		d.said = map[string]string{}
	}
	if d.said[name] == text {
		return
	}
	path := filepath.Join(d.Dir, name)
	if d.said[name] = text; text == "" {
		d.Log.Info("probe works again", "probe", path)
		return
	}
	d.Log.Warn("labels", "probe", path, "notice", text)
}

// listed returns the first of many, and how many there are.
func listed(all []string) string {
	const most = 5
	if len(all) <= most {
		return strings.Join(all, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
}
