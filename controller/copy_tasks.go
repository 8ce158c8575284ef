package controller

import (
	"context"
	"time"
)

// copyTask is one output that is not complete here.
type copyTask struct {
	job    uint64
	host   string
	ended  bool // the job has
	state  taskState
	due    time.Time // of a waiting one
	tries  int       // in a row that brought nothing
	again  bool      // something happened to the job while it was being copied
	since  time.Time // of a busy one
	cancel context.CancelFunc
}

type taskState uint8

const (
	taskWaits taskState = iota
	taskReady
	taskBusy
)

// copyResult is how a try ended.
type copyResult struct {
	task     *copyTask
	progress bool
}

// ready puts a task in line.
func (k *copying) ready(t *copyTask) {
	if t.state == taskReady {
		return
	}
	t.state = taskReady
	if t.ended {
		k.ended = append(k.ended, t)
	} else {
		k.running = append(k.running, t)
	}
}

// turn has the tasks that are busy look for the new leader. Nobody may go on
// following whom it followed: the old leader follows the new one now, and two
// who follow each other would wait for ever.
func (k *copying) turn() {
	for _, t := range k.tasks {
		if t.state == taskBusy {
			t.again = true
			t.cancel()
		}
	}
}

// retry has waiting tasks tried at once, and with anew often.
func (k *copying) retry(which func(*copyTask) bool, anew bool) {
	for _, t := range k.tasks {
		if t.state == taskWaits && which(t) {
			if anew {
				t.tries = 0
			}
			k.ready(t)
		}
	}
}

// finished takes a task back from its slot.
func (k *copying) finished(r copyResult) {
	t := r.task
	k.taken--
	t.cancel()
	t.state = taskWaits
	store, row := k.store.Load(), k.c.machine.View().Job(t.job)
	if !wantsCopy(store, row) {
		delete(k.tasks, t.job)
		return
	}
	t.ended = row.State.Terminal()
	if r.progress || t.again {
		t.tries = 0
	}
	if t.again {
		t.again = false
		k.ready(t)
		return
	}
	last, double := copyLast, 2
	if !t.ended {
		last, double = copyLastRuns, 1
	}
	pause := last
	if shift := double * t.tries; shift < 20 { // 100 ms << 20 is over the most
		pause = min(last, copyFirst<<shift)
	}
	t.tries++
	t.due = time.Now().Add(pause)
	if t.due.Before(k.scan) {
		k.scan = t.due
	}
}

// start fills the slots, and returns when to look again.
func (k *copying) start(ctx context.Context) time.Duration {
	now := time.Now()
	scan := !now.Before(k.scan)
	if scan {
		k.scan = now.Add(copyTick)
		for _, t := range k.tasks {
			if t.state != taskWaits {
				continue
			}
			if !now.Before(t.due) {
				k.ready(t)
			} else if t.due.Before(k.scan) {
				k.scan = t.due
			}
		}
	}
	for k.taken < maxCopying {
		queue := &k.ended
		if len(*queue) == 0 {
			queue = &k.running
		}
		if len(*queue) == 0 {
			break
		}
		t := (*queue)[0]
		*queue = (*queue)[1:]
		if t.job == 0 {
			continue
		}
		within, cancel := context.WithCancel(ctx)
		t.state, t.since, t.cancel = taskBusy, now, cancel
		k.taken++
		job, tries := t.job, t.tries // the task stays with this goroutine
		go func() {
			k.done <- copyResult{task: t, progress: k.fetch(within, job, tries)}
		}()
	}
	if scan {
		k.makeRoom(now)
	}
	return time.Until(k.scan)
}

// makeRoom ends the turn of as many as others wait for.
func (k *copying) makeRoom(now time.Time) {
	waiting := len(k.ended) + len(k.running)
	for _, t := range k.tasks {
		if waiting == 0 {
			return
		}
		if t.state == taskBusy && !t.ended && now.Sub(t.since) >= copyTurn {
			t.cancel()
			waiting--
		}
	}
}
