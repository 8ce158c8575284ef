package agent

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"rcd/agent/shim"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/session"
	"rcd/wire"
)

// maxReason bounds the texts of an outcome in bytes.
const maxReason = 4 << 10

// outcomeOf says how a job ended, as its shim has written it down.
func outcomeOf(j *job, r shim.Result) wire.Outcome {
	o := wire.Outcome{Job: j.job, Lease: j.lease, Reason: cut(r.Reason), OutputKnown: true, OutputLength: uint64(max(0, r.OutputLength))}
	if r.ExitCode != nil {
		code := int32(*r.ExitCode)
		o.ExitCode = &code
	}
	if digest, err := hex.DecodeString(r.OutputDigest); err == nil {
		o.OutputDigest = digest
	}
	switch r.Outcome {
	case shim.Exited:
		o.End, o.Origin = uint8(command.EndExited), uint8(model.OriginJob)
	case shim.Killed:
		o.End, o.Origin = uint8(command.EndKilled), originOfKill(r.Reason)
	case shim.StartFailed:
		o.End, o.Origin = uint8(command.EndStartFailed), uint8(originOf(r.Cause, model.OriginJob))
	default:
		o.End, o.Origin, o.ExitCode = uint8(command.EndSupervisorDied), uint8(originOf(r.Cause, model.OriginHost)), nil
		o.Reason = cut(r.Reason + "; submit the job again")
		if _, err := os.Stat(j.dir); errors.Is(err, os.ErrNotExist) {
			o.OutputKnown = false // it was deleted with the directory
		}
		if r.Cause == shim.CauseAgent {
			o.Reason = cut(fmt.Sprintf("%s; %s says more, submit the job again", r.Reason, filepath.Join(j.dir, "shim.log")))
		}
	}
	// The spool keeps the record of what it had to drop in this file.
	if _, err := os.Stat(filepath.Join(j.dir, "out", "gaps")); err == nil {
		o.OutputGap = true
	}
	o.Survivors = survivors(r)
	return o
}

// originOf names the side that a shim, or the attempt to start one, blames.
func originOf(cause shim.Cause, unsaid model.Origin) model.Origin {
	switch cause {
	case shim.CauseJob:
		return model.OriginJob
	case shim.CauseHost:
		return model.OriginHost
	case shim.CauseAgent:
		return model.OriginAgent
	}
	return unsaid
}

// originOfKill tells a person's kill from the agent's own and a watchdog's.
func originOfKill(reason string) uint8 {
	switch {
	case strings.HasPrefix(reason, "max_runtime exceeded"), strings.HasPrefix(reason, "idle: "), strings.HasPrefix(reason, reasonUnattended),
		strings.HasPrefix(reason, reasonUnattendedPipe):
		return uint8(model.OriginJob)
	case strings.HasPrefix(reason, reasonSuperseded), reason == reasonDrained, reason == session.ReasonNotDesired, reason == session.ReasonOldLease:
		return uint8(model.OriginAgent)
	}
	return uint8(model.OriginUser)
}

// survivors names what could not be ended, "" if the tree was seen empty.
func survivors(r shim.Result) string {
	if r.Clean() {
		return ""
	}
	var parts []string
	for _, p := range r.Survivors {
		parts = append(parts, fmt.Sprintf("pid %d (%s)", p.PID, p.Command))
	}
	if r.Unverified != "" {
		parts = append(parts, "not verified: "+r.Unverified)
	}
	return cut("processes of the job are left: " + strings.Join(parts, ", "))
}

// jobState is the word for a stream's end. The lease table has the last word.
func jobState(o wire.Outcome) string {
	switch command.EndKind(o.End) {
	case command.EndExited:
		if o.ExitCode != nil && *o.ExitCode == 0 {
			return model.JobSucceeded.String()
		}
		return model.JobFailed.String()
	case command.EndKilled:
		return model.JobKilled.String()
	case command.EndStartFailed:
		return model.JobFailed.String()
	}
	return model.JobLost.String()
}

func startFailedCode() *int32 {
	code := int32(-1)
	return &code
}

func cut(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxReason)], "?")
}
