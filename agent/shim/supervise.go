package shim

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
	"rcd/agent/spool"
)

const (
	// stragglerGrace is what processes that the job left behind get between SIGTERM and SIGKILL, unless the job's own grace is shorter.
	stragglerGrace = 2 * time.Second
	// lastWord is how long the exit of a main process that was seen to be gone may take to arrive.
	lastWord = 5 * time.Second
	// sweepTries bounds how often a sweep that could not read the process table is tried again.
	sweepTries = 3
	// writePause lies between two tries to write the result.
	writePause = time.Second
	// homeCheck is how often the shim looks whether its directory has been deleted.
	homeCheck = 2 * time.Second
	// reasonHomeless is why a job is ended whose directory is gone: no agent could find it any more, and its device would never be free.
	reasonHomeless = "the job's directory was deleted"
)

// supervisor is the shim's main goroutine: it owns the job from its fork to its result.
type supervisor struct {
	dir      string
	order    order
	self     proc.ID
	log      *slog.Logger
	listener net.Listener
	board    *board
	kills    chan string        // from agents
	limits   chan time.Duration // from agents
	limit    limit
	attached *attachment // nil for a log job
	process  processRecord
	home     *os.File // the directory, whatever becomes of its name
	cgroup   string   // the job's own, empty if it has none
}

// homeless tells whether the directory has been deleted.
func (s *supervisor) homeless() bool {
	var stat unix.Stat_t
	return unix.Fstat(int(s.home.Fd()), &stat) == nil && stat.Nlink == 0
}

// run takes the job to its end. When it returns the result is on disk and those who listened know.
func (s *supervisor) run(report *reporter) {
	srv := &server{board: s.board, kills: s.kills, limits: s.limits, attached: s.attached, hello: helloBody{protocolVersion, s.order.Spec.JobID, identityOf(s.self)}, log: s.log}
	served := make(chan struct{})
	go func() { defer close(served); srv.run(s.listener) }()

	result := s.witnessed(func() Result {
		return s.supervise(func() {
			report.say(message{Type: typeHello, Hello: &srv.hello, Status: s.board.now().body()})
		})
	})
	s.write(result)
	s.board.change(func(st *Status) { st.Phase, st.Output = Ended, result.OutputLength })
	report.say(message{Type: typeHello, Hello: &srv.hello, Status: s.board.now().body()})
	_ = s.listener.Close()
	<-served
	_ = os.Remove(filepath.Join(s.dir, socketName))
}

// write puts the result on disk. Without it there is no end: a full disk holds the device until a person makes room, which may take days, and the log is on
// that disk.
func (s *supervisor) write(result Result) {
	for said := false; ; time.Sleep(writePause) {
		err := writeResult(s.dir, result)
		switch {
		case err == nil && said:
			s.log.Info("result written after all")
			return
		case err == nil || s.homeless():
			return
		case !said:
			s.log.Error("write result; it is tried again each second", "error", err)
			said = true
		}
	}
}

// supervise returns the job's result. started is called once it runs, and not if it cannot.
func (s *supervisor) supervise(started func()) Result {
	defer s.attached.end()
	writer, err := s.output()
	if err != nil {
		return startFailed(s.dir, hostError{err})
	}
	if s.order.Spec.Kind == KindHold {
		return s.hold(writer, started)
	}
	p, err := newPump(writer, s.board, s.log)
	if err != nil {
		_ = writer.Close()
		return startFailed(s.dir, hostError{err})
	}
	if s.attached != nil {
		p.holdBack(&s.attached.readers, s.homeless)
	}
	s.enclose()
	defer s.disband()
	// The job inherits the normal score; lowering comes after the fork, so that no child of the job can ever have the low one.
	_ = proc.SetOOMScore(0, 0)
	job, err := launch(s.order.Spec, s.order.marks(), s.attached.size(), s.fork)
	if err != nil {
		_ = writer.Close()
		return startFailed(s.dir, err)
	}
	_ = proc.SetOOMScore(0, oomScore)
	p.start(job.streams)
	if s.attached != nil {
		s.attached.feeder.start(job.stdin)
	}
	s.announce(job.id)
	result := s.watch(job.id, p, started)
	job.hangUp()
	p.finish()
	if err := closeOutput(s.dir, writer); err != nil {
		s.log.Error("close spool", "error", err)
	}
	result.OutputLength, result.OutputDigest = writer.Length(), writer.Digest()
	return result
}

// announce puts down that the job runs, for those who come later and for those who listen.
func (s *supervisor) announce(job proc.ID) {
	now := time.Now()
	s.process.Job, s.process.StartedAt = identityOf(job), now.UnixNano()
	if err := writeRecord(s.dir, processName, kindProcess, s.process, replace); err != nil {
		s.log.Error("record job", "error", err) // an agent that has to clean up goes by the marks then
	}
	s.board.change(func(st *Status) { st.Phase, st.Job, st.StartedAt = Running, job, now })
}

func startFailed(dir string, err error) Result {
	code := exitNotStarted
	empty, _ := spool.Recover(filepath.Join(dir, outputName))
	return Result{
		Outcome: StartFailed, ExitCode: &code, Reason: clip("start: " + advised(err)), Cause: causeOf(err, CauseJob),
		OutputDigest: empty.Digest, FinishedAt: time.Now(),
	}
}

// watch waits for the end of the job's whole tree.
func (s *supervisor) watch(job proc.ID, p *pump, started func()) Result {
	r := newReaper()
	go r.run(job.PID)
	started()

	spec := s.order.Spec
	defer s.limit.start().Stop()
	grace := newWarning(spec, &s.limit, s.log)
	defer grace.timer.Stop()
	idle := newWatchdog(spec.IdleTimeout)
	defer idle.Stop()
	home := time.NewTicker(homeCheck)
	defer home.Stop()

	var (
		ended    *exit
		endedAt  time.Time
		sweeping = make(chan swept, 1)
		began    bool
		kill     string
	)
	begin := func(grace time.Duration) {
		if !began {
			began = true
			go func() { sweeping <- s.sweep(job, r, grace) }()
		}
	}
	over := func(e *exit) {
		ended, endedAt = e, time.Now()
		begin(min(spec.Grace, stragglerGrace))
	}
	end := func(reason string) {
		if ended != nil || began {
			return
		}
		// A main process that is gone keeps its own result, also when the word of its end is still on its way here.
		if !proc.Alive(job) {
			if e := s.lastExit(r); e != nil {
				over(e)
				return
			}
		}
		kill = reason
		s.board.change(func(st *Status) { st.Killing = reason })
		begin(spec.Grace)
	}
	for {
		select {
		case reason := <-s.kills:
			end(killReason(reason))
		case longer := <-s.limits:
			if !began {
				s.lengthen(longer)
				grace.aim(&s.limit)
			}
		case <-grace.timer.C:
			if !began {
				grace.send(job)
			}
		case <-s.limit.watchdog.C:
			end(s.limit.reason())
		case <-idle.C:
			if quiet := p.idle(); quiet < spec.IdleTimeout {
				idle.Reset(spec.IdleTimeout - quiet)
				continue
			}
			end(fmt.Sprintf("idle: no output for %s", spec.IdleTimeout))
		case <-home.C:
			if s.homeless() {
				end(reasonHomeless)
			}
		case e := <-r.exited:
			over(&e)
		case sw := <-sweeping:
			if ended == nil && sw.clean() {
				ended, endedAt = s.lastExit(r), time.Now()
			}
			return s.result(ended, endedAt, kill, sw)
		}
	}
}

// lastExit waits for the exit of a main process that the sweep no longer saw.
func (s *supervisor) lastExit(r *reaper) *exit {
	select {
	case e := <-r.exited:
		return &e
	case <-time.After(lastWord):
		s.log.Error("the main process is gone and its exit status did not come")
		return nil
	}
}

func (s *supervisor) result(ended *exit, endedAt time.Time, kill string, sw swept) Result {
	result := Result{
		Outcome: Exited, StartedAt: wallTime(s.process.StartedAt), FinishedAt: endedAt, Survivors: sw.survivors, Unverified: sw.problem,
	}
	if kill != "" {
		result.Outcome, result.Reason = Killed, kill
	}
	if ended != nil {
		code := ended.code()
		result.ExitCode = &code
	} else {
		result.FinishedAt = time.Now()
	}
	return result
}

// swept is what a sweep of the tree came to.
type swept struct {
	survivors []proc.Process
	problem   string
}

func (sw swept) clean() bool { return len(sw.survivors) == 0 && sw.problem == "" }

// sweep ends the whole tree.
func (s *supervisor) sweep(root proc.ID, r *reaper, grace time.Duration) swept {
	target := proc.Target{Root: root, Above: s.self, Marks: s.order.marks(), Cgroup: s.cgroup}
	select {
	case <-r.childless:
		// Nobody below us, so only somebody started by others on the job's behalf can be left. One look is enough: nobody of ours forks any more.
		if found, err := proc.Find(target); err == nil && len(found) == 0 {
			return swept{}
		}
	default:
	}
	sw := sweepTree(context.Background(), target, grace)
	if sw.clean() && !s.childless(r) {
		sw.problem = reasonUnseen
	}
	return sw
}

// sweepTree kills until the tree is seen empty, or says what is left.
func sweepTree(ctx context.Context, target proc.Target, grace time.Duration) swept {
	var sw swept
	for range sweepTries {
		left, err := proc.KillTree(ctx, target, grace)
		if err == nil {
			return swept{survivors: left}
		}
		sw = swept{survivors: left, problem: clip(err.Error())}
		if ctx.Err() != nil {
			break
		}
	}
	return sw
}

// hold waits for the end of a lease that no process uses. It ends as a process that SIGTERM ended would.
func (s *supervisor) hold(writer *spool.Writer, started func()) Result {
	s.announce(proc.ID{})
	started()
	defer s.limit.start().Stop()
	home := time.NewTicker(homeCheck)
	defer home.Stop()
	var reason string
	for reason == "" {
		select {
		case reason = <-s.kills:
			reason = killReason(reason)
		case longer := <-s.limits:
			s.lengthen(longer)
		case <-s.limit.watchdog.C:
			reason = s.limit.reason()
		case <-home.C:
			if s.homeless() {
				reason = reasonHomeless
			}
		}
	}
	s.board.change(func(st *Status) { st.Killing = reason })
	if err := writer.Close(); err != nil {
		s.log.Error("close spool", "error", err)
	}
	code := exitHoldFinished
	return Result{
		Outcome: Killed, ExitCode: &code, Reason: reason, OutputDigest: writer.Digest(),
		StartedAt: wallTime(s.process.StartedAt), FinishedAt: time.Now(),
	}
}

// newWatchdog returns a timer, or one that never fires for no limit. It runs on the monotonic clock.
func newWatchdog(limit time.Duration) *time.Timer {
	if limit > 0 {
		return time.NewTimer(limit)
	}
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

func killReason(reason string) string {
	if reason == "" {
		return "cancelled"
	}
	return clip(reason)
}
