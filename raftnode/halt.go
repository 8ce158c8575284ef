package raftnode

// Halted gets the reason, once, when the node met an entry that it could not
// apply, or was halted. It then serves nothing and takes no part in the
// cluster; Status says why.
func (n *Node) Halted() <-chan error { return n.halted }

// Halt ends this node's part in the cluster for good, because its state must
// not be trusted: from now on nothing is applied, read, proposed or saved here.
// A leader gives leadership away first. The reason, a sentence for the
// operator, is written into the data directory: it is refused from then on, by
// LoadIdentity, until it is emptied. Halt returns at once, may be called from
// OnApply, and does nothing on a node that has halted already.
func (n *Node) Halt(reason string) {
	// The mark is written by the goroutine that stops raft: the state machine
	// must not wait for a disk, and stands still from here on anyway.
	n.machine.stop(&permanent{reason})
}

// permanent is the error of a halt that only an empty data directory ends.
type permanent struct{ reason string }

func (p *permanent) Error() string { return ErrHalted.Error() + ": " + p.reason }
func (p *permanent) Unwrap() error { return ErrHalted }

// halt is called once, by whoever made the state machine stand still.
func (n *Node) halt(err error) {
	forGood, _ := err.(*permanent)
	if forGood == nil {
		n.logger.Error("halting: this build cannot go on from here; do not skip anything, run a build that knows it", "err", err)
	} else {
		n.logger.Error("halting for good", "why", forGood.reason)
	}
	n.halted <- err
	n.life.mu.Lock()
	defer n.life.mu.Unlock()
	if n.life.closing {
		n.markHalted(forGood)
		return
	}
	n.life.wait.Add(1)
	go func() {
		defer n.life.wait.Done()
		n.markHalted(forGood)
		n.life.mu.Lock() // raft may still be starting
		r := n.instance.Load()
		n.life.mu.Unlock()
		if r != nil {
			n.leave(r)
		}
	}()
}

// markHalted makes a halt for good outlive the process.
func (n *Node) markHalted(forGood *permanent) {
	if forGood == nil {
		return
	}
	if err := n.identity.halt(forGood.reason); err != nil {
		n.logger.Error("the halt could not be recorded; empty the data directory before this node is started again", "err", err)
	}
}
