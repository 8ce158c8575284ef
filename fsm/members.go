package fsm

import (
	"strconv"

	"rcd/fsm/command"
	"rcd/model"
)

// maxMembers bounds the controllers of a cluster, voters or not.
const maxMembers = 64

// memberPut records a controller's own word: who it is and what it knows.
func (t *txn) memberPut(b *command.MemberPut) answer {
	if b.ID == "" || len(b.ID) > maxNamed || len(b.Incarnation) > maxNamed || len(b.Build) > maxNamed || b.Supports == 0 {
		return refuse(command.BadRequest, "A controller has an ID and knows at least feature level 1, and its names have at most %d bytes; send its word again so.", maxNamed)
	}
	if b.Supports < t.meta.Feature {
		return refuse(command.FeatureRefused, "The cluster is at feature level %d and controller %s knows %d; upgrade it.", t.meta.Feature, b.ID, b.Supports)
	}
	row := model.Member{ID: b.ID, Incarnation: b.Incarnation, Supports: b.Supports, Build: b.Build, SinceMS: t.nowMS()}
	switch old := t.members.get(b.ID); {
	case old == nil && t.members.len() >= maxMembers:
		return refuse(command.LimitExceeded, "There are %d controllers already; remove one first.", maxMembers)
	case old != nil && old.Incarnation == row.Incarnation && old.Supports == row.Supports && old.Build == row.Build:
		return answer{}
	}
	t.members.put(&t.digest, b.ID, row)
	t.emit(command.Event{Kind: command.EventMembers, Reason: b.ID})
	return answer{}
}

func (t *txn) memberRemove(b *command.MemberRemove) answer {
	if t.members.remove(&t.digest, b.ID) == nil {
		return refuse(command.NotFound, "There is no controller %q on record; list the peers to see their IDs.", short(b.ID))
	}
	t.emit(command.Event{Kind: command.EventMembers, Reason: b.ID})
	return answer{}
}

// featureRaise makes a feature level the cluster's once every controller on
// record, and every other that the proposer knows of, has said that it knows
// it. There is no way back. No level has rows in
// another encoding yet, so the digest stays what it is.
func (t *txn) featureRaise(b *command.FeatureRaise) answer {
	switch {
	case b.Level <= t.meta.Feature:
		return refuse(command.FeatureRefused, "The cluster is at feature level %d already; there is nothing to raise.", t.meta.Feature)
	case t.members.len() == 0:
		return refuse(command.FeatureRefused, "No controller has said what it knows yet; wait for their word.")
	}
	for _, id := range b.Members {
		if t.members.get(id) == nil {
			return refuse(command.FeatureRefused, "Controller %s has not said what it knows; upgrade or start it, or remove it.", short(id))
		}
	}
	var behind *model.Member
	t.members.scan(func(_ string, m *model.Member) bool {
		if m.Supports < b.Level {
			behind = m
		}
		return behind == nil
	})
	if behind != nil {
		return refuse(command.FeatureRefused, "Controller %s knows feature level %d, not %d; upgrade it first, or remove it.", behind.ID, behind.Supports, b.Level)
	}
	if b.Level > t.knows {
		t.unknownLevel = b.Level
	}
	t.meta.Feature = b.Level
	t.emit(command.Event{Kind: command.EventFeature, Reason: strconv.FormatUint(uint64(b.Level), 10)})
	return answer{}
}

// Members returns the controllers on record by ID. The caller owns the slice.
func (v *View) Members() []*model.Member {
	rows := make([]*model.Member, 0, v.members.len())
	v.members.scan(func(_ string, m *model.Member) bool {
		rows = append(rows, m)
		return true
	})
	return rows
}

// Knows returns the highest feature level that this machine can apply.
func (m *Machine) Knows() uint32 { return m.options.Knows }
