package controller

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"rcd/controller/copies"
	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// copiesDir is where copies of output are kept, in the data directory.
const copiesDir = "output"

// Bounds of the copying on one controller.
const (
	maxCopying   = 64                     // outputs that are copied at once; a link costs about 150 KB
	copyTurn     = 5 * time.Second        // how long the output of a running job is followed while others wait
	copyLook     = time.Minute            // how often it is looked for jobs that are forgotten, and for damage
	copyTick     = time.Second            // how often, at the least, it is looked at what waits
	copyCalm     = 30 * time.Second       // how long nothing was refused when the alarm is taken back
	copyFirst    = 100 * time.Millisecond // pause after a try that brought nothing, for the next one
	copyLast     = time.Hour              // four times that, up to this, for a job that has ended
	copyLastRuns = 5 * time.Second        // and this for one that has not
	copyOld      = 10 * time.Minute       // a job that ended so long ago is not worth many tries
	copyOldTries = 4
)

// copying keeps this controller's copies of output: a leader's from the hosts,
// everybody else's from the leader, and from whoever has more once a job has
// ended. It never proposes anything and never waits for Raft.
type copying struct {
	c      *Controller
	limit  copies.Limit
	perJob int64
	disk   func(dir string) (size, free int64, err error)
	log    *slog.Logger
	// store is nil until the cluster is known and the directory has been read.
	store atomic.Pointer[copies.Store]
	pace  pace
	wake  chan struct{} // holds one

	mu    sync.Mutex // guards what follows
	jobs  map[uint64]struct{}
	hosts map[string]struct{}
	all   bool

	// Owned by run.
	tasks   map[uint64]*copyTask
	ended   []*copyTask // that may begin, of jobs that have ended; they go first
	running []*copyTask // of others
	taken   int         // slots
	scan    time.Time   // when a waiting task is due, or somebody has had a turn
	told    string      // why nothing is copied, as told last
	toldAt  time.Time
	refused time.Time // when something was the reason last
	done    chan copyResult
}

func newCopying(c *Controller, config Config, deps Deps, log *slog.Logger) *copying {
	return &copying{
		c: c, limit: config.OutputCopies, perJob: deps.CopyBytes, disk: deps.Disk, log: log, wake: make(chan struct{}, 1),
		jobs: map[uint64]struct{}{}, hosts: map[string]struct{}{}, all: true,
		tasks: map[uint64]*copyTask{}, done: make(chan copyResult, maxCopying),
	}
}

// applied is called for each entry on the state machine's goroutine, and does
// not block it.
func (k *copying) applied(events []command.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all {
		return
	}
	for _, e := range events {
		switch e.Kind {
		case command.EventJobStarted, command.EventJobEnded, command.EventJobLateTruth, command.EventJobRequeued:
			k.jobs[e.Job] = struct{}{} // at most one for each job there is
			k.nudge()
		case command.EventAgentRegistered, command.EventDeviceRecovered:
			k.hosts[e.Host] = struct{}{} // the leader will have what it has
			k.nudge()
		}
	}
}

// restored says that any job may have changed.
func (k *copying) restored() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = true
	k.nudge()
}

// attached says that a host is back.
func (k *copying) attached(host string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.hosts[host] = struct{}{}
	k.nudge()
}

func (k *copying) nudge() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run copies until ctx ends, and returns when nothing of it runs any more.
func (k *copying) run(ctx context.Context) {
	defer func() {
		for k.taken > 0 {
			<-k.done
			k.taken--
		}
	}()
	timer := time.NewTimer(0)
	defer timer.Stop()
	leader := k.c.Leader()
	looked := time.Now()
	for {
		select {
		case <-timer.C:
		case <-k.wake:
		case <-leader.Changed:
			leader = k.c.Leader()
			k.turn()
			k.retry(func(*copyTask) bool { return true }, false)
		case r := <-k.done:
			k.finished(r)
		case <-ctx.Done():
			return
		}
		store := k.opened(ctx)
		if store == nil {
			timer.Reset(copyTick)
			continue
		}
		view := k.c.machine.View()
		if now := time.Now(); now.Sub(looked) >= copyLook {
			looked = now
			k.look(store, view)
		}
		k.tell(store.Stopped())
		k.consider(store, view)
		k.tell(store.Stopped()) // a job that has just been found not to fit is taken up when this is taken back
		timer.Reset(k.start(ctx))
		store.Clean()
	}
}

// opened returns the store of the present cluster and generation, nil while
// there is none.
func (k *copying) opened(ctx context.Context) *copies.Store {
	store, self := k.store.Load(), k.c.identity.Self()
	if store != nil || self.ClusterID == "" || k.limit == (copies.Limit{}) {
		return store
	}
	store, err := copies.Open(ctx, copies.Options{
		Dir: filepath.Join(k.c.config.DataDir, copiesDir), Cluster: self.ClusterID, Generation: self.Generation,
		Limit: k.limit, PerJob: k.perJob, Disk: k.disk, Logger: k.log,
	})
	if err != nil && ctx.Err() == nil {
		k.tell("the directory of copies cannot be read: " + err.Error())
	}
	if err != nil {
		return nil
	}
	k.store.Store(store)
	return store
}

// tell raises the alarm, or takes it back with "", once that has been so for a
// while: near a limit one write is refused and the next is not, and each change
// of mind goes through the history of all jobs.
func (k *copying) tell(why string) {
	now := time.Now()
	if why != "" {
		k.refused = now
	}
	if why == k.told || k.told != "" && now.Sub(k.toldAt) < copyCalm || why == "" && now.Sub(k.refused) < copyCalm {
		return
	}
	k.toldAt = now
	if k.told = why; why == "" {
		k.restored() // what had no room may have some now
		k.c.alarms.end(wire.AlarmOutputCopies)
		k.log.Info("output is copied to this controller again")
		return
	}
	k.log.Warn("output is not copied to this controller", "why", why)
	k.c.alarms.raise(wire.AlarmOutputCopies, k.c.now(k.c.machine.View()),
		"Output is not copied to controller "+k.c.config.NodeID+", so that the output of new jobs may be lost with their hosts: "+why+".")
}

// look drops the copies of jobs that are forgotten, and has damaged ones
// fetched again. A node that has just started may know of no job since its last
// snapshot, for as long as it hears of no leader: what is above its counter is
// not forgotten.
func (k *copying) look(store *copies.Store, view *fsm.View) {
	for _, job := range store.Jobs() {
		if view.Job(job) == nil {
			if job <= view.LastJob() {
				store.Drop(job)
			}
		} else if state, ok := store.State(job); ok && state.Damaged {
			k.consider1(store, view, job)
		}
	}
}

// consider takes up what has happened since the last time.
func (k *copying) consider(store *copies.Store, view *fsm.View) {
	k.mu.Lock()
	jobs, hosts, all := k.jobs, k.hosts, k.all
	k.jobs, k.hosts, k.all = map[uint64]struct{}{}, map[string]struct{}{}, false
	k.mu.Unlock()
	if all {
		k.considerAll(store, view)
	}
	for job := range jobs {
		k.consider1(store, view, job)
	}
	if len(hosts) > 0 {
		k.retry(func(t *copyTask) bool { _, ok := hosts[t.host]; return ok }, true)
	}
}

// considerAll goes through the whole history, newest first: what there is room
// for is the newest.
func (k *copying) considerAll(store *copies.Store, view *fsm.View) {
	for before := uint64(0); ; {
		rows := view.Jobs(fsm.JobFilter{Limit: fsm.MaxListed, Before: before})
		for _, row := range rows {
			k.consider1(store, view, row.Number)
		}
		if len(rows) < fsm.MaxListed {
			return
		}
		before = rows[len(rows)-1].Number
	}
}

// consider1 makes a task of a job whose output is to be copied, at once, and
// ends that of one whose is not.
func (k *copying) consider1(store *copies.Store, view *fsm.View, job uint64) {
	row, t := view.Job(job), k.tasks[job]
	if !wantsCopy(store, row) {
		if t != nil && t.state != taskBusy {
			delete(k.tasks, job)
			t.job = 0 // a queue may still hold it
		}
		return
	}
	if t == nil {
		t = &copyTask{job: job}
		k.tasks[job] = t
	}
	t.host, t.ended, t.tries = row.Host, row.State.Terminal(), 0
	if t.ended && view.NowMS()-row.FinishedAtMS > copyOld.Milliseconds() {
		t.tries = copyOldTries
	}
	if t.state == taskBusy {
		t.again = true
		return
	}
	k.ready(t)
}

// wantsCopy reports whether more of a job's output is to be fetched. It notes
// in the store what the row tells.
func wantsCopy(store *copies.Store, row *model.Job) bool {
	if row == nil || row.Host == "" || row.Kind != model.KindJob || row.Stdio != model.StdioLogs {
		return false
	}
	if !row.State.Terminal() {
		return row.State == model.JobRunning
	}
	store.Ended(row.Number, row.FinishedAtMS)
	if row.OutputKnown && row.OutputLength == 0 {
		store.Drop(row.Number)
		return false
	}
	if !row.OutputKnown && row.StartedAtMS == 0 {
		return false // nobody knows of any
	}
	state, held := store.State(row.Number)
	if held && state.Lease == row.Lease {
		return !state.Complete
	}
	return store.Fits(row.FinishedAtMS, int64(row.OutputLength))
}
