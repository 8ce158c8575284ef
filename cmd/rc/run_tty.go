package main

import (
	"errors"
	"fmt"

	"rcd/model"
)

// shell is what runs on a terminal when no command is given: the host's bash,
// or its sh.
var shell = []string{"sh", "-c", "if command -v bash >/dev/null 2>&1; then exec bash -i; fi; exec sh -i"}

// onTerminal makes the job one on a terminal like rc's own. It is asked before
// anything is submitted: without a terminal there would be a job that nobody
// can type to.
func (v *runCmd) onTerminal(a *app, env map[string]string) error {
	t, err := openTerminal()
	if err != nil {
		return &usageError{text: "--tty needs a terminal on stdin; without it rc " + v.verb() + " prints what the command prints", verb: v.verb()}
	}
	defer t.close()
	if len(v.Command) == 0 {
		v.Command = shell
	}
	usual := map[string]string{"TERM": a.env("TERM"), model.DetachTimeoutEnv: v.DetachTimeout}
	if cols, rows, ok := t.size(); ok {
		usual[model.TTYSizeEnv] = fmt.Sprintf("%dx%d", cols, rows)
	}
	for name, value := range usual {
		if _, own := env[name]; !own && value != "" {
			env[name] = value
		}
	}
	return nil
}

// attach is what follow is for a job on a terminal.
func (r *runner) attach() error {
	s := &session{app: r.app, client: r.client, job: r.job, types: true, submitter: r.submitter}
	end, err := s.run()
	switch {
	case errors.Is(err, errDetached):
		r.app.say("detached; job %s goes on, on %s. Back: rc attach --take-over %s   End it: rc kill %s", r.job.ID, r.job.DeviceID, r.job.ID, r.job.ID)
		if patience, err := model.DetachTimeout(r.detachAfter); err == nil && patience > 0 {
			r.app.say("it is ended when nobody has been attached for %s", patience)
		}
		return exitError(exitInterrupted)
	case err != nil && r.app.interrupted():
		return r.interrupted()
	case brokenPipe(err):
		return r.unread(err)
	case err != nil:
		r.app.say("terminal lost: %s", sentence(err))
	case !end.Complete:
		r.app.say("the output of job %s is incomplete: %s", r.job.ID, end.Reason)
	}
	return nil
}

// look is the command that shows the job's output again.
func (r *runner) look() string {
	if r.stdio != "" {
		return "rc attach " + r.job.ID
	}
	return "rc logs -f " + r.job.ID
}
