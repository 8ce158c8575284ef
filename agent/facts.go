package agent

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"rcd/model/selector"
	"rcd/wire"
)

const (
	// volatileEvery is the least time between two tellings that only volatile
	// labels are behind, host by host: each is an entry in the cluster's log.
	volatileEvery = 5 * time.Second
	// firstFacts bounds how long the registration waits for the first word of
	// every source.
	firstFacts = time.Second
	// lateFacts bounds how long a source that hangs keeps back what others say.
	lateFacts = 10 * time.Second
	// maxLabels bounds the labels of one device, as the lease table does unless
	// told otherwise: it would refuse all of them.
	maxLabels = 256
)

// keeper holds what the host tells of its devices: what its sources said last,
// rounded, at a pace that the log can bear.
type keeper struct {
	devices []string
	log     *slog.Logger
	told    func() // something new is to be told
	known   chan struct{}

	mu       sync.Mutex // guards what follows
	sources  []*heard
	waiting  int                          // sources that have not answered yet, in any way
	labels   map[string]map[string]string // as told, by device; nil before all have answered
	volatile time.Time                    // when volatile labels were told last
	timer    *time.Timer                  // runs while a change of them waits
	sheets   map[string]string            // bodies by device, "" is the host; missing: not readable
	notices  map[string]string            // why a sheet is not told, by device
	cut      map[string]bool              // sheets that are told in part
	excess   bool                         // a device has more labels than are told
}

// heard is the last word of one source.
type heard struct {
	Source
	labels   Labels
	answered bool
	failing  bool
}

func newKeeper(devices []Device, sources []Source, log *slog.Logger, told func()) *keeper {
	k := &keeper{log: log, told: told, known: make(chan struct{}), waiting: len(sources), sheets: map[string]string{}, notices: map[string]string{}}
	for _, d := range devices {
		k.devices = append(k.devices, d.Name)
	}
	for _, s := range sources {
		k.sources = append(k.sources, &heard{Source: s, labels: s.Last})
	}
	if k.timer = time.AfterFunc(time.Hour, k.overdue); !k.timer.Stop() {
		panic("agent: a timer of an hour has fired at once")
	}
	return k
}

// run asks every source until ctx ends.
func (k *keeper) run(ctx context.Context) {
	late := time.AfterFunc(lateFacts, k.goOn)
	var wait sync.WaitGroup
	for _, s := range k.sources {
		wait.Go(func() {
			repeat(ctx, s.Every, s.Timeout, s.Detect, func(l Labels, err error) { k.hear(s, l, err) })
		})
	}
	wait.Wait()
	late.Stop()
	k.timer.Stop()
}

// await returns once every source has answered or failed for the first time,
// within firstFacts.
func (k *keeper) await(ctx context.Context) {
	timer := time.NewTimer(firstFacts)
	defer timer.Stop()
	select {
	case <-k.known:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// hear takes the word of a source.
func (k *keeper) hear(s *heard, labels Labels, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil && !s.failing {
		k.log.Warn("facts of the host not detected; the last ones stand", "source", s.Name, "error", err)
	}
	if s.failing = err != nil; !s.failing {
		s.labels = labels
	}
	if !s.answered {
		s.answered = true
		k.waiting--
	}
	if k.waiting == 0 {
		k.tell()
	}
}

// goOn tells what is known, though sources have not answered.
func (k *keeper) goOn() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.sources {
		if !s.answered {
			k.log.Warn("facts of the host are late; the last ones stand", "source", s.Name)
			s.answered = true
		}
	}
	if k.waiting > 0 {
		k.waiting = 0
		k.tell()
	}
}

// tell is consider, and marks the first time. The caller holds mu.
func (k *keeper) tell() {
	first := k.labels == nil
	k.consider()
	if first {
		close(k.known)
	}
}

// consider tells what has changed: at once, or when its time has come if it is
// only volatile. The caller holds mu.
func (k *keeper) consider() {
	next := k.merged()
	changed, firm := difference(k.labels, next)
	switch wait := volatileEvery - time.Since(k.volatile); {
	case k.labels != nil && !changed:
		// It went back; a timer that runs finds nothing to tell.
	case k.labels == nil || firm || wait <= 0:
		k.timer.Stop()
		k.labels, k.volatile = next, time.Now()
		k.told()
	default:
		k.timer.Reset(wait)
	}
}

// overdue tells volatile labels that had to wait, as they are now.
func (k *keeper) overdue() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.consider()
}

// merged returns what all sources say, the later over the earlier, rounded with
// regard to what is told already. Beyond maxLabels no key of a later source is
// added.
func (k *keeper) merged() map[string]map[string]string {
	all := make(map[string]map[string]string, len(k.devices))
	excess := ""
	for _, device := range k.devices {
		set := map[string]string{}
		for _, s := range k.sources {
			for _, labels := range []map[string]string{s.labels[""], s.labels[device]} {
				for _, key := range slices.Sorted(maps.Keys(labels)) {
					if _, known := set[key]; !known && len(set) == maxLabels {
						excess = device
						continue
					}
					set[key] = labels[key]
				}
			}
		}
		for key, value := range set {
			set[key] = rounded(key, value, k.labels[device][key])
		}
		all[device] = set
	}
	if excess != "" && !k.excess {
		k.log.Warn("a device has too many labels; those of the last probes are left out", "device", excess, "limit", maxLabels)
	}
	k.excess = excess != ""
	return all
}

// difference reports whether two sets of labels differ, and whether they do in
// more than the values of volatile labels.
func difference(a, b map[string]map[string]string) (changed, firm bool) {
	for device := range b {
		if len(a[device]) != len(b[device]) {
			return true, true
		}
		for key, value := range b[device] {
			old, ok := a[device][key]
			if ok && old == value {
				continue
			}
			if changed = true; !ok || !selector.Volatile(key) {
				return true, true
			}
		}
	}
	return changed, false
}

// facts returns all that is to be told: labels in the order of the configuration,
// the host's sheet first.
func (k *keeper) facts() wire.Facts {
	k.mu.Lock()
	defer k.mu.Unlock()
	var f wire.Facts
	for _, device := range k.devices {
		if k.labels != nil {
			f.Labels = append(f.Labels, wire.DeviceFacts{Name: device, Detected: labelList(k.labels[device])})
		}
	}
	for _, name := range slices.Concat([]string{""}, k.devices) {
		if body, ok := k.sheets[name]; ok {
			f.Sheets = append(f.Sheets, wire.SheetText{Name: name, Body: body})
		}
	}
	return f
}

// detected returns the labels of a device as they are told, nil while none are
// known.
func (k *keeper) detected(device string) []wire.LabelKV {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.labels == nil {
		return nil
	}
	return labelList(k.labels[device])
}

// hearSheets takes what is on disk now. A sheet that cannot be told stays as it
// is in the table.
func (k *keeper) hearSheets(read sheets) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, why := range read.refused {
		if k.notices[name] != why {
			k.log.Warn("usage sheet not told; the one before stands", "path", read.path(name), "notice", why)
		}
		delete(k.sheets, name)
	}
	k.notices = read.refused
	for name, size := range read.sizes {
		if !k.cut[name] {
			k.log.Warn("usage sheet cut; shorten it", "path", read.path(name), "bytes", size, "told", len(read.bodies[name]))
		}
	}
	k.cut = map[string]bool{}
	for name := range read.sizes {
		k.cut[name] = true
	}
	changed := false
	for name, body := range read.bodies {
		if old, ok := k.sheets[name]; !ok || old != body {
			k.sheets[name], changed = body, true
		}
	}
	if changed {
		k.told()
	}
}
