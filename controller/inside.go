package controller

import (
	"context"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/session"
)

// endUnrunnable ends jobs inside holds that no order will ever reach: their host
// has come back with an agent of an earlier release since the edge took them.
// Without it the device would be held for them for good.
func (c *Controller) endUnrunnable(ctx context.Context, view *fsm.View, contacts []session.Contact) {
	for _, end := range unrunnable(view, contacts) {
		if result, _, err := c.propose(ctx, end); err != nil || result.Code != command.OK {
			c.log.Info("a job inside a hold that its agent cannot run has not ended yet", "job", model.JobID(end.Job), "code", result.Code, "err", err)
		}
	}
}

// maxUnrunnable bounds the ends of one round, each an entry: no agent is taken in
// meanwhile. The next sweep, a second later, ends the rest.
const maxUnrunnable = 64

// unrunnable lists the ends of such jobs, of some if there are many.
func unrunnable(view *fsm.View, contacts []session.Contact) []*command.JobFinish {
	var ends []*command.JobFinish
	for i := range contacts {
		ct := &contacts[i]
		if !ct.Attached || ct.Protocol >= session.InsideProtocol {
			continue
		}
		named := map[uint64]bool{}
		for _, j := range ct.Named {
			named[j.Job] = true
		}
		for _, j := range view.LiveJobsOn(ct.Host) {
			if j.Hold == 0 || j.State != model.JobAssigned || named[j.Number] {
				continue
			}
			if len(ends) == maxUnrunnable {
				return ends
			}
			code := int32(-1)
			ends = append(ends, &command.JobFinish{
				JobRef: command.JobRef{Job: j.Number, Lease: j.Lease}, Host: ct.Host, Instance: ct.Instance,
				End: command.EndStartFailed, ExitCode: &code, Origin: uint8(model.OriginAgent), OutputKnown: true,
				Reason: "start: the agent of host " + ct.Host + " is of an earlier release, which runs nothing inside a hold; upgrade it",
			})
		}
	}
	return ends
}
