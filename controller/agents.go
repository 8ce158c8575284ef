package controller

import (
	"context"
	"fmt"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/raftnode"
	"rcd/session"
	"rcd/wire"
)

// agents is the controller as the sessions' hub sees it.
type agents struct{ c *Controller }

var _ session.Backend = agents{}

// Role implements session.Backend.
func (a agents) Role() (session.Role, <-chan struct{}) { return a.c.role.Get() }

// Index implements session.Backend.
func (a agents) Index() uint64 { return a.c.machine.Index() }

// Controllers implements session.Backend.
func (a agents) Controllers() []wire.Controller { return a.c.controllers() }

// Admit implements session.Backend. It first makes sure that this node may
// speak and knows what the agent has seen, which holds up nobody else; then it
// keeps sweeps off: a hello waits for a verdict in flight on its host, and none
// is passed from here until the session is attached.
func (a agents) Admit(ctx context.Context, hello wire.Hello) (session.Admission, error) {
	var none session.Admission
	if _, err := a.c.node.Read(ctx, raftnode.Linearizable); err != nil {
		return none, fmt.Errorf("verify leadership before reconciling %s: %w", hello.Host, err)
	}
	if err := a.c.node.WaitIndex(ctx, hello.Index); err != nil {
		return none, fmt.Errorf("reach index %d, which %s has seen: %w", hello.Index, hello.Host, err)
	}
	a.c.verdicts.enter()
	defer a.c.verdicts.leave()
	known := a.c.machine.View().Agent(hello.Host)
	if known != nil && known.MachineID != hello.MachineID {
		// The table would refuse it too; a host that comes every few seconds
		// must not fill the log.
		return none, &session.Refusal{Code: string(command.WrongMachine), Message: fmt.Sprintf(
			"the host name %q belongs to another machine; give this one a name of its own, or have an operator retire the old one", hello.Host)}
	}
	if known == nil || known.Instance != hello.Instance {
		result, _, err := a.c.propose(ctx, session.Registration(hello))
		if err != nil {
			return none, fmt.Errorf("register %s: %w", hello.Host, err)
		}
		if result.Code != command.OK {
			return none, &session.Refusal{Code: string(result.Code), Message: result.Message}
		}
	}
	a.c.live.Admit(hello.Host, time.Now())
	a.c.copying.attached(hello.Host)
	view := a.c.machine.View()
	return session.Admission{ClusterID: a.c.identity.Self().ClusterID, Index: view.Index(), Facts: a.factsDigest(view, hello)}, nil
}

// WantsProof implements session.Backend. A device whose automatic returns are
// used up waits for a person, and so does every device of a host that asked for
// it; a job that the host still names must be gone first.
func (a agents) WantsProof(hello wire.Hello) bool {
	return !hello.RequireManualClear && a.c.machine.View().ProofWanted(hello.Host)
}

// Prove implements session.Backend. Only a clean proof is worth an entry.
func (a agents) Prove(ctx context.Context, hello wire.Hello) error {
	if !hello.Proof.SurvivorsChecked || hello.Proof.SurvivorsFound || !a.WantsProof(hello) {
		return nil
	}
	a.c.verdicts.enter()
	defer a.c.verdicts.leave()
	if known := a.c.machine.View().Agent(hello.Host); known == nil || known.Instance != hello.Instance {
		return nil // another process speaks for the host now
	}
	if hello.Index < a.c.quarantines.last(hello.Host) {
		return nil // it was asked before the latest quarantine, and is asked again
	}
	result, _, err := a.c.propose(ctx, session.Recovery(hello))
	if err == nil && result.Code != command.OK {
		err = fmt.Errorf("proof of %s refused: %s: %s", hello.Host, result.Code, result.Message)
	}
	return err
}

// Desired implements session.Backend.
func (a agents) Desired(host string, term uint64) ([]session.Desired, bool) {
	view := a.c.machine.View()
	if view.Term() != term {
		return nil, false
	}
	return desiredOn(view, host), true
}

func desiredOn(view *fsm.View, host string) []session.Desired {
	var all []session.Desired
	for _, j := range view.LiveJobsOn(host) {
		if !j.State.Active() {
			continue
		}
		all = append(all, session.Desired{
			Job: j.Number, Lease: j.Lease, State: j.State, KillRequested: j.KillRequested, KillReason: killReason(j),
			Start: wire.StartJob{
				Job: j.Number, Lease: j.Lease, Kind: uint8(j.Kind), Devices: j.Devices, Command: j.Command, Cwd: j.Cwd,
				Env: j.Env, Submitter: j.Submitter, MaxRuntimeS: j.MaxRuntimeS, IdleTimeoutS: j.IdleTimeoutS, Stdio: uint8(j.Stdio),
				Hold: j.Hold,
			},
		})
	}
	return all
}

// killReason is what a host is told of why a job ends, and says in its outcome; ""
// is the word of the ancestor, which its clients know. What it did not have ends
// for reasons that nobody would guess.
func killReason(j *model.Job) string {
	if j.Hold == 0 && j.SessionS == 0 {
		return ""
	}
	return j.KillBy
}

// Started implements session.Backend.
func (a agents) Started(ctx context.Context, host, instance string, job, lease uint64) error {
	result, _, err := a.c.propose(ctx, &command.JobStart{
		JobRef: command.JobRef{Job: job, Lease: lease}, Host: host, Instance: instance,
	})
	if err != nil {
		return err
	}
	switch result.Code {
	case command.OK, command.StaleLease, command.AlreadyEnded, command.NotFound:
		return nil // nothing more is to be said about it
	}
	return fmt.Errorf("start of %s refused: %s: %s", model.JobID(job), result.Code, result.Message)
}

// Finish implements session.Backend.
func (a agents) Finish(ctx context.Context, host, instance string, o wire.Outcome) (uint64, bool, error) {
	result, index, err := a.c.propose(ctx, &command.JobFinish{
		JobRef: command.JobRef{Job: o.Job, Lease: o.Lease}, Host: host, Instance: instance,
		End: command.EndKind(o.End), ExitCode: o.ExitCode, Reason: o.Reason, Origin: o.Origin,
		OutputLength: o.OutputLength, OutputDigest: o.OutputDigest, OutputKnown: o.OutputKnown, OutputGap: o.OutputGap,
		Survivors: o.Survivors,
	})
	if err != nil {
		return 0, false, err
	}
	switch result.Code {
	case command.OK, command.AlreadyEnded, command.StaleLease, command.NotFound:
		return index, true, nil
	}
	return 0, false, fmt.Errorf("end of %s refused: %s: %s", model.JobID(o.Job), result.Code, result.Message)
}
