package agent

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"rcd/agent/proc"
	"rcd/model"
)

const (
	// scriptGrace is what a script gets between SIGTERM and SIGKILL. It is short:
	// a job, or the end of one, waits for it.
	scriptGrace = time.Second
	// scriptMark is the environment variable that tells one run's processes from
	// everybody else's.
	scriptMark = "RC_RUN_MARK"
)

// What a script is run for: its RC_EVENT.
const (
	eventAcquire = "acquire"
	eventRelease = "release"
	eventVerify  = "verify"
)

// script is one run of an operator's executable for a device.
type script struct {
	path    string
	event   string
	device  string // its name
	tenant  tenant
	timeout time.Duration
	stdout  bool // its stdout is kept, not only its stderr
	keep    int  // bytes of the end of what it says
}

// tenant is whose use of a device a script is about; the zero tenant is nobody.
type tenant struct{ job, submitter string }

// scriptEnd is what came of a run.
type scriptEnd struct {
	failure string // "" if it ended by itself with 0
	tail    string // the end of what it said, plain text without blanks around it
	left    string // processes of it that could not be ended
}

// said returns the failure with what the script said last, in at most room
// bytes: what is too long is cut in front.
func (e scriptEnd) said(room int) string {
	text := joined(e.failure, leftover(e.left))
	if e.tail == "" {
		return text
	}
	tail := e.tail
	if over := len(text) + len(": ") + len(tail) - room; over > 0 {
		tail = strings.ToValidUTF8(tail[min(over, len(tail)):], "")
	}
	return text + ": " + tail
}

func leftover(left string) string {
	if left == "" {
		return ""
	}
	return "processes of it are left: " + left
}

// run runs a script to its end and returns what came of it. It ends early, with
// the cause of ctx as the failure, when ctx ends or the timeout is over: then
// every process of the run is ended, and seen to be. What a script that ends by
// itself leaves behind it left on purpose; its output is read as far as it is
// there.
func (s *scripts) run(ctx context.Context, x script) scriptEnd {
	ctx, cancel := context.WithTimeoutCause(ctx, x.timeout, fmt.Errorf("timed out after %v", x.timeout))
	defer cancel()
	said, pipe, err := newTail(x.keep)
	if err != nil {
		return scriptEnd{failure: "make pipe: " + err.Error()}
	}
	defer said.close()
	mark := rand.Text()
	forget := s.record(x, mark)
	s.runs(mark, target(proc.ID{}, mark)) // before there is anything to be taken for a survivor
	stdout := pipe
	if !x.stdout {
		stdout = nil
	}
	p, err := launch(ctx, x.path, append(s.environment(x), scriptMark+"="+mark), stdout, pipe)
	_ = pipe.Close()
	if err != nil {
		forget()
		return scriptEnd{failure: err.Error()}
	}
	if p.root.Zero() {
		s.log.Warn("a script that was just started is known by its mark alone", "script", x.path)
	}
	s.runs(mark, target(p.root, mark))
	var end scriptEnd
	select {
	case <-p.exited:
	case <-ctx.Done():
		end.failure = context.Cause(ctx).Error()
		if end.left = ended(context.WithoutCancel(ctx), target(p.root, mark)); end.left == "" {
			<-p.exited
		}
	}
	if end.failure == "" {
		end.failure = p.failure()
	}
	if end.left == "" {
		forget()
	}
	end.tail = said.end()
	return end
}

// environment is all that a script sees but for its mark: the same base as a
// job's, so no credential is in it.
func (s *scripts) environment(x script) []string {
	env := baseEnvironment()
	env["RC_EVENT"] = x.event
	env[deviceEnv] = model.DeviceID(s.host, x.device)
	env[proc.JobIDName] = x.tenant.job
	env["RC_SUBMITTER"] = x.tenant.submitter
	maps.Copy(env, s.cuda([]string{x.device}))
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out
}

// tenantIn returns whose job an environment is of.
func tenantIn(env []string) (t tenant) {
	for _, entry := range env {
		if job, ok := strings.CutPrefix(entry, proc.JobIDName+"="); ok {
			t.job = job
		}
		if who, ok := strings.CutPrefix(entry, "RC_SUBMITTER="); ok {
			t.submitter = who
		}
	}
	return t
}
