package sim

import (
	"rcd/fsm"
	"rcd/fsm/command"
)

// cluster holds the record of the controllers against the truth, and what
// checkpoints say against what this witness has compared itself.
func (s *step) cluster() {
	for i, c := range s.commands {
		if !s.accepted(i) {
			continue
		}
		switch c.Body.(type) {
		case *command.LabelsReplace:
			s.w.counts.LabelsReplaced++
		case *command.SheetPut:
			s.w.counts.SheetsPut++
		case *command.MemberPut:
			s.w.counts.MembersPut++
		case *command.MemberRemove:
			s.w.counts.MembersRemoved++
		}
	}
	for _, e := range s.events {
		switch e.Kind {
		case command.EventCheckpoint:
			s.w.counts.Checkpoints++
		case command.EventDiverged:
			s.w.fail("law 5: a checkpoint at index %d says that %s differs from the majority", s.index, e.Reason)
		case command.EventNoMajority:
			s.w.fail("law 5: a checkpoint at index %d found no majority: %s", s.index, e.Reason)
		case command.EventWriteOffWithheld:
			s.w.counts.Withheld++
		case command.EventRecoveryWithheld:
			s.w.counts.FlapWithheld++
		}
	}
	if s.now.FeatureLevel() == s.old.FeatureLevel() {
		return
	}
	s.w.counts.Raised++
	if s.now.FeatureLevel() < s.old.FeatureLevel() || !s.accepts(func(b any) bool { _, ok := b.(*command.FeatureRaise); return ok }) {
		s.w.fail("index %d: the feature level went from %d to %d", s.index, s.old.FeatureLevel(), s.now.FeatureLevel())
	}
	for _, n := range s.w.nodes {
		if n.knows < s.now.FeatureLevel() {
			s.w.fail("index %d: the feature level is %d and %s knows %d", s.index, s.now.FeatureLevel(), n.id, n.knows)
		}
	}
}

// moved tests that leadership moves once for a write-off that is withheld.
func (x *witness) moved(withheld fsm.Withheld) {
	if x.movedFor == withheld.FirstTerm {
		x.w.fail("leadership moves away again from the write-off that term %d withheld", withheld.FirstTerm)
	}
	x.movedFor = withheld.FirstTerm
}
