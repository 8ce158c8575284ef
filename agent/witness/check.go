package witness

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Report is what the logs of a place say.
type Report struct {
	Devices []Used // sorted by name
	// Breaches are signs that a device was used by two leases, by one twice or
	// by a passed one, and lines that cannot be read. Empty: none.
	Breaches []string
}

// Used is one device's part of a report.
type Used struct {
	Device string
	Begun  []uint64 // the leases, in the order in which they began, as far as the log goes back
	Held   bool     // the last one has not ended, or a job inside it has not
}

// Leases returns the leases that began on a device, nil if none.
func (r Report) Leases(device string) []uint64 {
	for _, u := range r.Devices {
		if u.Device == device {
			return u.Begun
		}
	}
	return nil
}

// Check reads the logs of a place and judges them. A place that does not exist
// has nothing to say. Errors are the disk's. It may be called while devices
// are in use.
func Check(dir string) (Report, error) {
	logs, err := filepath.Glob(filepath.Join(dir, "*"+logSuffix))
	if err != nil {
		return Report{}, fmt.Errorf("list witness logs: %w", err)
	}
	var r Report
	slices.Sort(logs)
	for _, path := range logs {
		device := strings.TrimSuffix(filepath.Base(path), logSuffix)
		text, err := readLog(path)
		if err != nil {
			return Report{}, fmt.Errorf("read witness log: %w", err)
		}
		used, breaches := judge(text)
		used.Device = device
		r.Devices = append(r.Devices, used)
		for _, b := range breaches {
			r.Breaches = append(r.Breaches, device+": "+b)
		}
	}
	return r, nil
}

// readLog returns a log behind what stood in it before, also if it is turned
// over meanwhile.
func readLog(path string) ([]byte, error) {
	old := strings.TrimSuffix(path, logSuffix) + oldSuffix
	for {
		before, err := stat(old)
		if err != nil {
			return nil, err
		}
		var parts [2][]byte
		for i, name := range []string{old, path} {
			if parts[i], err = os.ReadFile(name); err != nil && !errors.Is(err, os.ErrNotExist) {
				return nil, err
			}
		}
		after, err := stat(old)
		if err != nil {
			return nil, err
		}
		if before == nil && after == nil || os.SameFile(before, after) {
			return append(parts[0], parts[1]...), nil
		}
	}
}

// stat is os.Stat that returns nil for what is not there.
func stat(path string) (os.FileInfo, error) {
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return info, err
}

// judge reads one device's log. A lease's number only rises from one lease to
// the next, so a number that comes again or too late is a breach of its own.
func judge(log []byte) (used Used, breaches []string) {
	var current, last uint64      // the lease that has the device, 0 for none, and the highest that had it
	inside := map[string]uint64{} // the leases of jobs inside, by job
	for line := range bytes.Lines(log) {
		text := strings.TrimSuffix(string(line), "\n")
		word, lease, job, ok := parse(text)
		breach := func(why string) { breaches = append(breaches, why+": "+text) }
		if !ok || !bytes.HasSuffix(line, []byte("\n")) {
			breach("cannot be read")
			continue
		}
		switch word {
		case wordDouble:
			breach("used twice")
		case wordBegin:
			switch {
			case current != 0:
				breach(fmt.Sprintf("began while lease %d had the device", current))
			case lease == last:
				breach("began a second time")
			case lease < last:
				breach(fmt.Sprintf("began after the later lease %d", last))
			}
			for _, other := range slices.Sorted(maps.Keys(inside)) {
				breach(fmt.Sprintf("began while %s had the device inside lease %d", other, inside[other]))
			}
			clear(inside)
			current, last = lease, max(last, lease)
			used.Begun = append(used.Begun, lease)
		case wordInside:
			switch {
			case current != 0 && current != lease:
				breach(fmt.Sprintf("began inside while lease %d had the device", current))
			case lease < last:
				breach(fmt.Sprintf("began inside after the later lease %d", last))
			case lease > last && last != 0: // 0: the log does not go back so far
				breach("began inside before its lease")
			}
			inside[job], last = lease, max(last, lease)
		case wordLeft:
			delete(inside, job)
		case wordEnd, wordGone:
			if _, ok := inside[job]; ok && word == wordGone {
				delete(inside, job)
				break
			}
			// Who died between two writes may have said its end and nothing
			// before, or is said to be gone after it: that is no harm.
			if current != 0 && current != lease {
				breach(fmt.Sprintf("ended while lease %d had the device", current))
			}
			current, last = 0, max(last, lease)
		default:
			breach("cannot be read")
		}
	}
	used.Held = current != 0 || len(inside) > 0
	return used, breaches
}

// parse takes a line apart: time, word, lease, job and more.
func parse(line string) (word string, lease uint64, job string, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 3 {
		return "", 0, "", false
	}
	number, ok := strings.CutPrefix(fields[2], "lease=")
	if !ok {
		return "", 0, "", false
	}
	if len(fields) > 3 {
		job = strings.TrimPrefix(fields[3], "job=")
	}
	lease, err := strconv.ParseUint(number, 10, 64)
	return fields[1], lease, job, err == nil
}
