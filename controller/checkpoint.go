package controller

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"rcd/api"
	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/wire"
)

const (
	// digestPatience is how long a leader waits for the digests of voters that
	// do not answer or have not come to the index yet.
	digestPatience = 5 * time.Second
	// digestTimeout bounds asking them once.
	digestTimeout = time.Second
)

// comparison is a leader's collecting of what the voters held at one index. It
// is for one goroutine.
type comparison struct {
	index   uint64 // 0: none under way
	since   time.Time
	reports map[string][]byte // by voter
	lacking map[string]bool   // voters that came past the index by a snapshot
	done    uint64            // the last index that this epoch is through with
	// told is how many digests of index were proposed and left the majority
	// open; 0: none were.
	told int
}

// compare collects digests of the newest checkpoint's index and proposes what
// it has when all voters have answered, or after a short patience. An index is
// proposed once an epoch, so that an idle log stays idle; only where the digests
// differ and no majority holds one, again with each voter that answers later:
// its word may say who is right.
func (c *Controller) compare(ctx context.Context, p *comparison) {
	agreed, _ := c.machine.View().Checkpoint()
	index, own := c.machine.LastMark()
	if p.told > 0 && index > p.index {
		p.through()
	}
	if p.index == 0 {
		if index <= agreed || index <= p.done {
			return
		}
		p.index, p.since, p.lacking = index, time.Now(), map[string]bool{}
		raw := own.Bytes()
		p.reports = map[string][]byte{c.config.NodeID: raw[:]}
	}
	voters := c.voters()
	waiting := c.collect(ctx, p, voters)
	if ctx.Err() != nil || waiting && time.Since(p.since) < digestPatience {
		return
	}
	body := p.body(voters)
	if p.told > 0 && len(body.Reports) <= p.told {
		if !waiting {
			p.through()
		}
		return
	}
	if !worthProposing(body) {
		c.log.Warn("the controllers' lease tables were not compared: too few of them have a digest", "index", p.index, "have", len(body.Reports), "voters", len(voters))
		p.through()
		return
	}
	result, _, err := c.propose(ctx, body)
	if err != nil {
		c.log.Info("checkpoint not taken", "index", p.index, "err", err)
		return
	}
	if result.Code != command.OK && result.Code != command.StaleCheckpoint {
		c.log.Warn("checkpoint refused", "index", p.index, "code", result.Code, "why", result.Message)
	}
	if result.Code == command.OK && waiting && !agreeing(body) {
		p.told = len(body.Reports)
		return
	}
	p.through()
}

func (p *comparison) through() { p.done, p.index, p.told = p.index, 0, 0 }

func (c *Controller) voters() []string {
	var voters []string
	for _, m := range c.node.Members() {
		if m.Voter {
			voters = append(voters, m.ID)
		}
	}
	return voters
}

// collect asks the voters that have not answered, all at once, and reports
// whether to wait for one.
func (c *Controller) collect(ctx context.Context, p *comparison, voters []string) (waiting bool) {
	ctx, cancel := context.WithTimeout(ctx, digestTimeout)
	defer cancel()
	type answer struct {
		node   string
		digest api.DigestAt
		err    error
	}
	answers := make(chan answer, len(voters))
	asked := 0
	for _, id := range voters {
		if _, has := p.reports[id]; has || p.lacking[id] {
			continue
		}
		asked++
		go func() {
			digest, err := c.peerClient.DigestAt(ctx, id, p.index)
			answers <- answer{id, digest, err}
		}()
	}
	for range asked {
		a := <-answers
		digest, err := hex.DecodeString(a.digest.Digest)
		switch {
		case a.err == nil && err == nil && len(digest) == len(fsm.Digest{}.Bytes()):
			p.reports[a.node] = digest
		case a.err == nil && a.digest.Digest == "" && a.digest.Applied > p.index:
			p.lacking[a.node] = true
		default:
			waiting = true
			c.log.Debug("no digest yet", "of", a.node, "index", p.index, "err", a.err)
		}
	}
	return waiting
}

// body makes the command of what was collected from those who are voters now.
func (p *comparison) body(voters []string) *command.Checkpoint {
	body := &command.Checkpoint{Index: p.index, Voters: uint32(len(voters))}
	for _, id := range voters {
		if digest, ok := p.reports[id]; ok {
			body.Reports = append(body.Reports, command.DigestReport{Node: id, Digest: digest})
		}
	}
	slices.SortFunc(body.Reports, func(a, b command.DigestReport) int { return strings.Compare(a.Node, b.Node) })
	return body
}

// worthProposing reports whether the lease table can draw anything from the
// reports: a majority that agrees, or a difference.
func worthProposing(body *command.Checkpoint) bool {
	differ := slices.ContainsFunc(body.Reports, func(r command.DigestReport) bool {
		return string(r.Digest) != string(body.Reports[0].Digest)
	})
	return differ || 2*len(body.Reports) > int(body.Voters)
}

// agreeing reports whether a majority of the voters holds one digest.
func agreeing(body *command.Checkpoint) bool {
	holders := map[string]int{}
	for _, r := range body.Reports {
		holders[string(r.Digest)]++
		if 2*holders[string(r.Digest)] > int(body.Voters) {
			return true
		}
	}
	return false
}

// DigestAt implements api.Internal.
func (c *Controller) DigestAt(index uint64) api.DigestAt {
	answer := api.DigestAt{Applied: c.machine.Index()} // before the digest: what comes meanwhile is asked for again
	if digest, ok := c.machine.DigestAt(index); ok {
		answer.Digest = digest.String()
	}
	return answer
}

// compared takes that a majority of voters agreed at a checkpoint. Each node
// holds that against its own state, also one that was not asked, and one that
// the log calls diverged believes its own state rather: it may have been emptied
// since. One that differs halts for good, before it applies another entry.
func (c *Controller) compared() {
	c.alarms.end(wire.AlarmNoMajority)
	index, diverged := c.machine.Diverged()
	if !diverged {
		return
	}
	own, _ := c.machine.DigestAt(index)
	_, agreed := c.machine.View().Checkpoint()
	<-c.opened // the log is applied from within raftnode.Open on
	c.node.Halt(fmt.Sprintf("at index %d the lease table here had digest %s, and %s at the majority of the controllers: this copy is damaged and must not be used. "+
		"Keep a copy of %s for a report if you can, then empty it, remove %s from the cluster and let it rejoin as a new node",
		index, own, agreed, c.config.DataDir, c.config.NodeID))
}

// undecided takes that the voters' digests differ and no majority holds one:
// nobody can say who is right, so nobody halts.
func (c *Controller) undecided(index uint64) {
	c.alarms.raise(wire.AlarmNoMajority, time.UnixMilli(c.machine.View().NowMS()), fmt.Sprintf(
		"the controllers' lease tables differ and no majority holds the same (entry %d, see rc raft log --since %d): at least one is damaged and nobody can say which. "+
			"Nothing has been halted. Compare rc raft status of all at the same table index, keep copies of the data directories, and report it.", index, index))
}
