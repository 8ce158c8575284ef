package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/raftnode"
	"rcd/session"
)

// lead runs everything that only a leader does, in one place and one order,
// until ctx ends with the epoch. An error gives leadership away.
func (c *Controller) lead(ctx context.Context, epoch raftnode.Epoch) error {
	if offset, known := c.clocks.median(len(c.voters())); known && offset.Abs() > maxClockSkew {
		return fmt.Errorf("this host's clock is %v off the median of the controllers; set it right", offset.Abs().Round(time.Millisecond))
	}
	c.reach.reset(time.Now())
	c.live.Reset(time.Now())
	c.heartbeats.reset(time.Now())
	c.hub.Reset()
	c.words.reset()
	c.doubts.Reset()
	c.quarantines.reset()
	c.told.leads()
	c.setRole(&session.Role{Leading: true, Epoch: ctx, Generation: c.identity.Self().Generation, Term: epoch.Term})
	defer c.setRole(nil)
	defer c.keepHeard()
	within, end := context.WithCancel(ctx)
	var tending sync.WaitGroup
	tending.Go(func() { c.tend(within) })
	if c.webhooks != nil {
		tending.Go(func() { c.sendWebhooks(within) })
	}
	defer tending.Wait()
	defer end()
	return c.judge(ctx, epoch.Term)
}

// errUnreachable gives leadership away: Raft's heartbeats go out, so that no
// election would ever follow, and nobody can reach this node to ask for
// anything.
var errUnreachable = errors.New("no majority of controllers can reach this leader's port, though it reaches them; look at the firewall of this host")

// errWithheld gives leadership away, once: that so many hosts are silent may be
// the fault of this leader's own network.
var errWithheld = errors.New("so many hosts are silent that none is written off; leadership moves once, in case it is this controller that cannot hear them")

// moveAway reports whether this epoch was the first to withhold a mass
// write-off, and there is another controller that could look.
func (c *Controller) moveAway(term uint64) bool {
	w, waits := c.machine.View().Withheld()
	return waits && w.FirstTerm == term && len(c.voters()) > 1
}

// judge collects evidence and proposes what follows from it, until ctx ends.
// It fails with errUnreachable and errWithheld.
func (c *Controller) judge(ctx context.Context, term uint64) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	last, pruned := time.Now(), time.Now()
	var told crier
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		now := time.Now()
		if late := now.Sub(last); late > wokeAfter {
			// Law 4: a leader that wakes up judges nobody. What it did not
			// hear while it was stopped is no silence.
			c.log.Warn("this process was stopped for a while, silence is counted anew", "for", late)
			c.keepHeard()
			c.live.Reset(now)
			c.heartbeats.reset(now)
			c.reach.reset(now)
		}
		if !c.reach.reachable(now, len(c.voters())/2, unreachableAfter) {
			return errUnreachable
		}
		c.sweep(ctx, now, term)
		told.tell(c, now)
		if c.moveAway(term) {
			return errWithheld
		}
		if now.Sub(pruned) >= pruneEvery {
			pruned = now
			c.prune(ctx)
		}
		last = time.Now() // slow work of ours is no stop of the process
	}
}

// sweep proposes what the leader can witness about silent and returned agents,
// if the lease table could draw anything from it. No agent is admitted
// meanwhile.
func (c *Controller) sweep(ctx context.Context, now time.Time, term uint64) {
	c.verdicts.shut()
	defer c.verdicts.open()
	contacts := c.hub.Contacts()
	c.live.Attend(contacts)
	view := c.machine.View()
	c.dropUnregistered(view, contacts)
	c.endUnrunnable(ctx, view, contacts)
	body, worth := c.live.Evidence(now, view, contacts, term, c.hub.Ordered)
	if epoch, leading := c.node.Epoch(); leading {
		body.Sessions = c.heartbeats.evidence(now, epoch.Started, func() sessionTable { return c.machine.View() })
	}
	if !worth && len(body.Sessions) == 0 && !c.noServeDue(view, now) {
		return
	}
	result, _, err := c.propose(ctx, body)
	if err != nil || result.Code != command.OK {
		c.log.Info("sweep not taken", "code", result.Code, "err", err)
	}
}

// dropUnregistered ends the sessions of agents that the lease table does not
// know: an operator retired the host at the moment at which it came back, before
// the table heard of that. Nobody would register it while its session lasts.
func (c *Controller) dropUnregistered(view *fsm.View, contacts []session.Contact) {
	for i := range contacts {
		ct := &contacts[i]
		if a := view.Agent(ct.Host); ct.Attached && (a == nil || a.Instance != ct.Instance) {
			c.log.Info("an attached agent is not registered any more and has to register again", "host", ct.Host, "instance", ct.Instance)
			c.hub.Drop(ct.Host, ct.Instance)
		}
	}
}

// noServeDue reports whether a queued job waits for a device that no host has
// any more, for so long that a sweep ends it: then even one without evidence is
// worth an entry. An idle log's uptime stands still, so the time since the epoch
// began is this process's.
func (c *Controller) noServeDue(view *fsm.View, now time.Time) bool {
	at, ok := view.NoServeAtMS()
	epoch, leading := c.node.Epoch()
	return ok && leading && view.EpochUptimeMS()+now.Sub(epoch.Started).Milliseconds() >= at
}

func (c *Controller) prune(ctx context.Context) {
	if !c.machine.View().PruneNeeded() {
		return
	}
	if result, _, err := c.propose(ctx, &command.JobPrune{Limit: pruneLimit}); err != nil || result.Code != command.OK {
		c.log.Info("prune not taken", "code", result.Code, "err", err)
	}
}

// pruneLimit bounds one prune, so that forgetting a long history never holds
// up the entry behind it.
const pruneLimit = 1000

// epochBegin makes the first command of a term.
func (c *Controller) epochBegin(_ uint64, stamp time.Time) []byte {
	body := &command.EpochBegin{Node: c.config.NodeID, WallMS: stamp.UnixMilli()}
	if offset, known := c.clocks.median(len(c.voters())); known {
		body.MedianMS = stamp.Add(offset).UnixMilli()
	}
	encoded, err := command.Encode(command.Request{}, body)
	if err != nil {
		panic("controller: epoch.begin does not encode: " + err.Error())
	}
	return encoded
}
