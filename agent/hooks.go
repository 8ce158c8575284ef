package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"rcd/agent/shim"
	"rcd/model"
)

const (
	// hookTail is how much of what a hook says is kept for the log, in bytes.
	hookTail = 4 << 10
	// hookReason bounds what of it goes into a job's reason and a device's: the
	// lease table keeps 1 KiB of each, and cuts at the end, where the message is.
	hookReason = 1000
	// As in the ancestor: on_release of all devices at the start of the agent, and
	// at its end.
	releasesAtStart = 2 * time.Minute
	releasesAtStop  = 20 * time.Second
)

// custody is what the hooks of one device know of it. There is none for a
// device without hooks.
type custody struct {
	device string
	Hooks
	// turn holds one while a hook runs, or while it is decided whether one is to.
	// It guards held and begun.
	turn  chan struct{}
	held  bool // on_acquire has succeeded since the last on_release
	begun bool // on_acquire has begun since then

	mu     sync.Mutex // guards what follows
	user   uint64     // the last lease that has come to the device
	tenant tenant     // whose that is
	came   chan struct{}
}

func newCustodies(devices []Device) map[string]*custody {
	all := map[string]*custody{}
	for _, d := range devices {
		if d.Hooks.OnAcquire != "" || d.Hooks.OnRelease != "" {
			all[d.Name] = &custody{device: d.Name, Hooks: d.Hooks, turn: make(chan struct{}, 1), came: make(chan struct{})}
		}
	}
	return all
}

// come makes a lease the device's user, which ends the linger after the one
// before it: whoever leaves later than that has nothing to say any more.
func (d *custody) come(lease uint64, t tenant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.user, d.tenant = lease, t
	close(d.came)
	d.came = make(chan struct{})
}

// uses returns whose the device is if lease is the last that came to it; came is
// closed when another one comes.
func (d *custody) uses(lease uint64) (t tenant, came <-chan struct{}, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tenant, d.came, d.user == lease
}

// take waits for the turn. The only error is ctx's.
func (d *custody) take(ctx context.Context) error {
	select {
	case d.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *custody) pass() { <-d.turn }

// keptBy returns the custodies of a job's devices, sorted by device.
func (a *agent) keptBy(j *job) (all []*custody) {
	for _, device := range j.devices {
		if d := a.custodies[device]; d != nil {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(x, y *custody) int { return cmp.Compare(x.device, y.device) })
	return all
}

// enter runs on_acquire for those of a lease's devices that are not held, and
// returns false when the job is not to be started: it then has its outcome,
// unless the agent stops. In that case it has not begun, and the next agent
// runs on_acquire once more. The fence is not raised before, so that this is so
// as well when the agent is killed meanwhile.
func (a *agent) enter(j *job, t tenant) bool {
	all := a.keptBy(j)
	if len(all) == 0 {
		return true
	}
	ctx, cancel := context.WithCancel(a.ctx)
	defer cancel()
	failures := make([]string, len(all))
	var wait, watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-j.cancel:
			cancel()
		case <-ctx.Done():
		}
	})
	for i, d := range all {
		d.come(j.lease, t)
		wait.Go(func() { failures[i] = a.acquire(ctx, d, t) })
	}
	wait.Wait()
	interrupted := ctx.Err() != nil
	cancel()
	watch.Wait()

	texts := map[string]string{}
	for i, d := range all {
		if failures[i] != "" {
			texts[d.device] = failures[i]
		}
	}
	switch {
	case len(texts) > 0:
		failures = slices.DeleteFunc(failures, func(f string) bool { return f == "" })
		o := startFailed(errors.New(strings.Join(failures, "; ")), model.OriginDevice)
		o.Survivors = a.takeOut(a.ctx, j, texts)
		a.settle(j, o)
	case !interrupted:
		return true
	case a.ctx.Err() == nil:
		a.mu.Lock()
		reason := j.killing
		a.mu.Unlock()
		a.cancelled(j, reason)
	}
	a.rest(j.lease, all)
	return false
}

// acquire has a device held. It returns why the device is not fit; "" if it is
// held, and when ctx has ended first, which is nobody's fault.
func (a *agent) acquire(ctx context.Context, d *custody, t tenant) (failure string) {
	if d.take(ctx) != nil {
		return ""
	}
	defer d.pass()
	if d.held || ctx.Err() != nil {
		return ""
	}
	d.begun = true
	if d.OnAcquire == "" {
		d.held = true
		return ""
	}
	end := a.scripts.run(ctx, script{
		path: d.OnAcquire, event: eventAcquire, device: d.device, tenant: t, timeout: d.Timeout, stdout: true, keep: hookTail,
	})
	switch {
	case end.failure == "":
		d.held = true
		return ""
	case ctx.Err() != nil && end.left == "":
		a.log.Info("on_acquire interrupted", "device", d.device, "job", t.job, "output", end.tail)
		return ""
	}
	d.begun = false // no release: a person looks at the device first
	a.log.Error("on_acquire failed", "device", d.device, "job", t.job, "script", d.OnAcquire, "failure", joined(end.failure, leftover(end.left)), "output", end.tail)
	prefix := "on_acquire of " + d.device + " "
	return prefix + end.said(hookReason-len("start: ")-len(prefix))
}

// leave is called when a job is over, or the agent stops under it: then its
// devices stay held, and the next agent takes that up with the job. Of a lease
// the last one leaves; of two that are over together it does not matter which.
func (a *agent) leave(j *job) {
	select {
	case <-j.over:
	default:
		if a.ctx.Err() != nil {
			return
		}
	}
	a.mu.Lock()
	shared := a.shared(j)
	a.mu.Unlock()
	if !shared {
		a.rest(j.lease, a.keptBy(j))
	}
}

// rest runs on_release for devices after their linger, or at once when the agent
// stops, except for those that another lease comes to first. It returns after
// that.
func (a *agent) rest(lease uint64, all []*custody) {
	var wait sync.WaitGroup
	for _, d := range all {
		wait.Go(func() {
			_, came, mine := d.uses(lease)
			if !mine {
				return
			}
			timer := time.NewTimer(d.Linger)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-came:
				return
			case <-a.ctx.Done():
			}
			_ = d.take(context.Background()) // whoever has it is bounded
			defer d.pass()
			t, _, mine := d.uses(lease)
			if mine && d.begun {
				a.release(context.Background(), d, t)
			}
		})
	}
	wait.Wait()
}

// release runs on_release. It is not to be ended because the agent stops, but
// it keeps a stopping agent for no longer than releasesAtStop. The caller has
// the turn.
func (a *agent) release(ctx context.Context, d *custody, t tenant) {
	d.held, d.begun = false, false
	if d.OnRelease == "" {
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	late := fmt.Errorf("ended, for the agent stops and waits no longer than %v", releasesAtStop)
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-a.ctx.Done():
			pause(ctx, releasesAtStop)
			cancel(late)
		case <-ctx.Done():
		}
	})
	defer watch.Wait()
	defer cancel(nil)
	end := a.scripts.run(ctx, script{
		path: d.OnRelease, event: eventRelease, device: d.device, tenant: t, timeout: d.Timeout, stdout: true, keep: hookTail,
	})
	if end.failure != "" {
		a.log.Error("on_release failed", "device", d.device, "job", t.job, "script", d.OnRelease, "failure", end.failure, "output", end.tail)
	}
	if end.left != "" {
		a.unendable(d.device, "on_release", end.left)
	}
}

// releaseIdle runs on_release for every device that no adopted job is on, since
// nobody knows what the agent before this one left undone. Each device has its
// turn taken when it returns, so that no job begins there before.
func (a *agent) releaseIdle() {
	ctx, cancel := context.WithTimeoutCause(context.Background(), releasesAtStart, fmt.Errorf("ended, for the releases at the start of the agent may take %v in all", releasesAtStart))
	var wait sync.WaitGroup
	for _, d := range a.custodies {
		select {
		case d.turn <- struct{}{}:
		default:
			continue // nobody has a turn yet
		}
		if d.begun || d.OnRelease == "" {
			d.pass()
			continue
		}
		wait.Go(func() {
			defer d.pass()
			a.release(ctx, d, tenant{})
		})
	}
	a.wait.Go(func() {
		wait.Wait()
		cancel()
	})
}

// readopt takes up what the hooks know of an adopted job's devices: while one of
// its lease runs they are held. Once all have ended, the agent before this one may
// have run on_release already, so the next lease acquires anew. It is called
// before releaseIdle, and before anybody else knows of the job.
func (a *agent) readopt(j *job) {
	for _, d := range a.keptBy(j) {
		held := j.handle.Status().Phase != shim.Ended
		switch {
		case d.user > j.lease:
			continue // it has only not been told yet
		case d.user == j.lease:
			held = held || d.held
		}
		d.come(j.lease, a.tenantOf(j))
		d.begun, d.held = true, held
	}
}
