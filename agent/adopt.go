package agent

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rcd/agent/proc"
	"rcd/agent/shim"
	"rcd/wire"
)

// stillborn bounds the wait for a shim that the agent before us has forked and
// that has not taken its job up yet.
const stillborn = 5 * time.Second

// errNotBegun: the directory holds a job that no shim has taken up, or none.
var errNotBegun = errors.New("the job has not begun")

// adopt takes up what the jobs directory holds: what runs, what has ended and
// was not acked, and what has not begun. It does not wait for processes to end.
func (a *agent) adopt() error {
	if err := shim.RemoveCgroups(filepath.Join(a.config.DataDir, jobsDir), a.log); err != nil {
		a.log.Warn("cgroups of ended jobs not removed", "error", err)
	}
	keys, err := a.jobKeys()
	if err != nil {
		return err
	}
	// Whoever ends under a lease looks at the others of it, so all are known first.
	var adopted []*job
	for _, k := range keys {
		if _, err := os.Stat(filepath.Join(a.dirOf(k), ackedFile)); err == nil {
			a.janitor.add(k)
			continue
		}
		j, err := a.load(k, false)
		if errors.Is(err, errNotBegun) {
			err = a.unbegin(k, keys)
		}
		if err != nil {
			return fmt.Errorf("adopt job %s: %w", k.name(), err)
		}
		if j == nil {
			continue
		}
		a.at(atAdopting)
		if err := a.state.raise(j.devices, j.claim()); err != nil {
			a.log.Error("fence of an adopted job not on disk", "job", k.job, "error", err)
		}
		a.log.Info("job adopted", "job", k.job, "lease", k.lease, "phase", j.phase)
		// What a shim wrote down of a limit is not looked at once the job has ended.
		running := j.outcome == nil && j.handle != nil && j.handle.Status().Phase != shim.Ended
		if running && j.limitS > 0 && j.enforced() == 0 {
			a.log.Warn("the job's shim is of an earlier release: its runtime limit cannot be lengthened", "job", k.job, "limit_s", j.limitS)
		}
		a.mu.Lock()
		a.jobs[k] = j
		a.mu.Unlock()
		switch {
		case j.handle == nil || j.outcome != nil:
		case a.overtaken(j, keys):
			// Its outcome was told, for a later lease has begun: the device is not its
			// own any more, and is not to be looked at.
			a.finish(j, a.outcomeOf(j, j.handle))
		default:
			j.use = useNow
			a.readopt(j)
			a.health.began(j, j.handle)
			adopted = append(adopted, j)
		}
	}
	a.mu.Lock()
	for _, j := range a.jobs {
		if j.outcome != nil {
			a.endInside(j)
		}
	}
	a.mu.Unlock()
	for _, j := range adopted {
		a.wait.Go(func() {
			if j.hold != 0 {
				defer a.janitor.hold(key{j.hold, j.lease})()
			}
			a.follow(j, j.handle)
			a.leave(j)
		})
	}
	return nil
}

// overtaken reports whether a job has ended and one of a later lease has run on
// one of its devices. That the fence is higher does not say so: a kill raises it
// for a job that never came.
func (a *agent) overtaken(j *job, keys []key) bool {
	begun := func(d string) bool { return a.state.begun(d) > j.lease }
	if j.handle.Status().Phase != shim.Ended || !slices.ContainsFunc(j.devices, begun) {
		return false
	}
	return slices.ContainsFunc(keys, func(k key) bool {
		if k.lease <= j.lease {
			return false
		}
		spec, err := shim.Load(a.dirOf(k))
		switch {
		case errors.Is(err, shim.ErrNoJob):
			return false
		case err != nil:
			return true // it may have been on any
		}
		return slices.ContainsFunc(devicesIn(spec.Env), func(d string) bool { return slices.Contains(j.devices, d) })
	})
}

// jobKeys lists the job directories. What is not one is left alone, and named.
func (a *agent) jobKeys() ([]key, error) {
	entries, err := os.ReadDir(filepath.Join(a.config.DataDir, jobsDir))
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	var keys []key
	for _, e := range entries {
		if k, ok := parseKey(e.Name()); ok && e.IsDir() {
			keys = append(keys, k)
			continue
		}
		a.log.Warn("not a job's directory", "path", filepath.Join(a.config.DataDir, jobsDir, e.Name()))
	}
	return keys, nil
}

// load reads a job from its directory. errNotBegun if none has begun there. A
// record that cannot be read makes the job an ended one whose device waits for
// a person. told: its outcome has been told before; of another job that the
// shim has ended, follow makes the outcome.
func (a *agent) load(k key, told bool) (*job, error) {
	j := a.newJob(k, nil)
	var o wire.Outcome
	err := readRecord(filepath.Join(j.dir, outcomeFile), kindOutcome, &o)
	switch {
	case err == nil:
		if spec, err := shim.Load(j.dir); err == nil {
			j.described(spec)
		}
		j.handle = a.ran(j)
		j.ended(o)
		return j, nil
	case errors.Is(err, errCorrupt):
		return a.unreadable(j, err), nil
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	h, err := adoptShim(j.dir, a.log)
	switch {
	case errors.Is(err, shim.ErrCorrupt):
		return a.unreadable(j, err), nil
	case err != nil:
		return nil, err
	}
	j.handle = h
	j.described(h.Spec())
	limit, ok := h.Limit()
	if !ok {
		limit = h.Spec().MaxRuntime
	}
	j.limitS = int64(limit / time.Second)
	switch status := h.Status(); status.Phase {
	case shim.Running:
		j.phase = wire.PhaseRunning
		if status.Killing != "" {
			j.killing = status.Killing
			close(j.cancel)
		}
	case shim.Ended:
		if told {
			j.ended(a.outcomeOf(j, h))
			break
		}
		j.phase = wire.PhaseRunning
	}
	return j, nil
}

// ran returns the handle of a job that has its outcome, for its output; nil if
// it never ran.
func (a *agent) ran(j *job) *shim.Handle {
	h, err := shim.Adopt(j.dir, a.log)
	if err != nil {
		return nil // the outcome is what counts, and it is there
	}
	if h.Status().Phase != shim.Ended {
		h.Close()
		return nil
	}
	return h
}

// ended makes a loaded job an ended one, before anybody else knows it.
func (j *job) ended(o wire.Outcome) {
	o.Job, o.Lease = j.job, j.lease
	j.outcome, j.phase = &o, wire.PhaseEnded
	close(j.over)
}

func (a *agent) unreadable(j *job, err error) *job {
	a.log.Error("record of a job cannot be read; its device waits for a person", "job", j.job, "lease", j.lease, "error", err)
	j.ended(lostRecord(err.Error()))
	return j
}

// adoptShim is shim.Adopt that is sure of errNotBegun: a shim that the agent
// before us forked just before its end may come to life after we have looked.
// Nobody else forks one, so once none is there, none comes.
func adoptShim(dir string, log *slog.Logger) (*shim.Handle, error) {
	// Nearly all have begun, and that needs no look at every process.
	if h, err := shim.Adopt(dir, log); !errors.Is(err, shim.ErrNotBegun) && !errors.Is(err, shim.ErrNoJob) {
		return h, err
	}
	for deadline := time.Now().Add(stillborn); ; time.Sleep(10 * time.Millisecond) {
		shims, err := shims()
		if err != nil {
			return nil, err
		}
		h, err := shim.Adopt(dir, log)
		if !errors.Is(err, shim.ErrNotBegun) && !errors.Is(err, shim.ErrNoJob) {
			return h, err
		}
		id, there := shims[dir]
		if !there {
			return nil, errNotBegun
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("a shim (process %d) for %s neither begins nor ends; end it", id.PID, dir)
		}
	}
}

// shims returns the shim processes of this machine by their job's directory.
func shims() (map[string]proc.ID, error) {
	list, err := proc.List()
	if err != nil {
		return nil, err
	}
	out := map[string]proc.ID{}
	for _, p := range list {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
		if err != nil {
			continue // it has ended
		}
		if dir, ok := shimDir(string(line)); ok {
			out[dir] = p.ID
		}
	}
	return out, nil
}

// shimDir returns the directory in a shim's command line, which the kernel
// shows with a NUL after each argument.
func shimDir(line string) (string, bool) {
	args := strings.Split(line, "\x00")
	if len(args) > 3 && args[1] == "shim" && args[2] == "--dir" {
		return args[3], true
	}
	return "", false
}

// unbegin removes the directory of a job that has not begun and takes it out of
// the fence, with its lease if that is its own, so that the leader's next order
// may start it. The fence comes first: the directory is what tells the next agent,
// should this one die in between, or find no room for the fence: then it stays.
func (a *agent) unbegin(k key, keys []key) error {
	a.log.Info("job had not begun when the agent before this one ended", "job", k.job, "lease", k.lease)
	if err := a.state.unbegin(k, a.wasInside(k, keys)); err != nil {
		a.log.Error("fence of a job that had not begun not on disk", "job", k.job, "error", err)
		return nil
	}
	a.at(atUnfenced)
	return shim.RemoveDir(a.dirOf(k))
}

// wasInside reports whether a job that has not begun was to run inside a hold: the
// hold has begun, and its record is kept for as long as anybody comes to it. A job
// of the same lease that was ended before its hold came has no spec.
func (a *agent) wasInside(k key, keys []key) bool {
	return slices.ContainsFunc(keys, func(other key) bool {
		if other == k || other.lease != k.lease {
			return false
		}
		spec, err := shim.Load(a.dirOf(other))
		return err == nil && spec.Kind == shim.KindHold
	})
}

// rebuildFence raises a lost fence to what the jobs' records say. One that
// cannot be read may be of any device, so the fence of each may be too low: they
// all wait for a person.
func (a *agent) rebuildFence() error {
	keys, err := a.jobKeys()
	if err != nil {
		return err
	}
	for _, k := range keys {
		spec, err := shim.Load(a.dirOf(k))
		if err != nil {
			a.log.Warn("job does not help to rebuild the fence", "job", k.job, "error", err)
			// A lease whose end is in the log is not ordered again.
			if _, over := os.Stat(filepath.Join(a.dirOf(k), ackedFile)); errors.Is(err, shim.ErrCorrupt) && over != nil {
				if err := a.fault(a.keeper.devices, "the record of begun leases was lost and could not be rebuilt: "+err.Error()); err != nil {
					return err
				}
			}
			continue
		}
		j := job{key: k, hold: holdIn(spec.Env)}
		if err := a.state.raise(devicesIn(spec.Env), j.claim()); err != nil {
			return err
		}
	}
	return nil
}
