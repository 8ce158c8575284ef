package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/raftnode"
	"rcd/wire"
)

// word is what a controller says of itself.
type word struct {
	incarnation string
	supports    uint32 // highest feature level its build knows; 0: it does not say
	build       string
}

// words holds what the other controllers have said in this epoch.
type words struct {
	mu   sync.Mutex
	said map[string]word
}

// reset forgets them, at the start of an epoch: a controller may have been
// started anew with another build since.
func (w *words) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.said = map[string]word{}
}

func (w *words) take(node string, said word) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.said != nil {
		w.said[node] = said
	}
}

func (w *words) of(node string) (word, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	said, ok := w.said[node]
	return said, ok
}

// ownWord is what this controller says of itself.
func (c *Controller) ownWord() word {
	return word{c.identity.Self().Incarnation, c.machine.Knows(), c.config.Version}
}

// membership is a leader's memory of what it need not say twice in its epoch.
// It is for one goroutine.
type membership struct {
	refused map[string]refusal // words that the lease table did not take, by controller
	raised  uint32             // the level proposed last
}

// refusal is a word that the lease table did not take, and why.
type refusal struct {
	said word
	why  command.Result
}

// hears takes what a controller says now, and reports whether that is other
// than what was refused.
func (m *membership) hears(id string, said word) bool {
	if old, ok := m.refused[id]; ok && old.said == said {
		return false
	}
	delete(m.refused, id)
	return true
}

// keep forgets controllers that are none any more.
func (m *membership) keep(members []raftnode.Member) {
	for id := range m.refused {
		if !slices.ContainsFunc(members, func(m raftnode.Member) bool { return m.ID == id }) {
			delete(m.refused, id)
		}
	}
}

// behind says which controllers do not know the cluster's feature level, and
// what to do; "" when all do.
func (m *membership) behind() string {
	var all []string
	for _, r := range m.refused {
		if r.why.Code == command.FeatureRefused {
			all = append(all, r.why.Message)
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// record brings the rows of the controllers to what they say of themselves,
// removes those of controllers that are gone, and raises the feature level once
// all of them know a higher one. Where nothing has changed it proposes nothing.
func (c *Controller) record(ctx context.Context, m *membership) {
	members := c.node.Members()
	if len(members) == 0 {
		return
	}
	m.keep(members)
	for _, member := range members {
		c.recordOne(ctx, m, member.ID)
	}
	c.tellBehind(m)
	for _, row := range c.machine.View().Members() {
		if slices.ContainsFunc(members, func(m raftnode.Member) bool { return m.ID == row.ID }) {
			continue
		}
		if result, _, err := c.propose(ctx, &command.MemberRemove{ID: row.ID}); err != nil || result.Code != command.OK {
			c.log.Info("a removed controller stays on record", "controller", row.ID, "code", result.Code, "err", err)
		}
	}
	c.raiseFeature(ctx, m, members)
}

func (c *Controller) wordOf(id string) (word, bool) {
	if id == c.config.NodeID {
		return c.ownWord(), true
	}
	said, ok := c.words.of(id)
	return said, ok && said.supports > 0
}

func (c *Controller) recordOne(ctx context.Context, m *membership, id string) {
	said, ok := c.wordOf(id)
	if !ok || !m.hears(id, said) || agrees(c.memberRow(id), said) {
		return
	}
	result, _, err := c.propose(ctx, &command.MemberPut{ID: id, Incarnation: said.incarnation, Supports: said.supports, Build: said.build})
	switch {
	case err != nil:
		c.log.Info("a controller's word is not on record yet", "controller", id, "err", err)
	case result.Code != command.OK:
		m.refused[id] = refusal{said, result}
		c.log.Error("a controller's word was refused", "controller", id, "code", result.Code, "why", result.Message)
	}
}

// tellBehind keeps the alarm of controllers that do not know the cluster's
// feature level for as long as there are such. Only a leader knows: its alarm
// ends with its epoch.
func (c *Controller) tellBehind(m *membership) {
	if behind := m.behind(); behind != "" {
		c.alarms.raise(wire.AlarmMemberBehind, c.now(c.machine.View()), behind)
	} else {
		c.alarms.end(wire.AlarmMemberBehind)
	}
}

func (c *Controller) memberRow(id string) *model.Member {
	for _, row := range c.machine.View().Members() {
		if row.ID == id {
			return row
		}
	}
	return nil
}

func agrees(row *model.Member, said word) bool {
	return row != nil && row.Incarnation == said.incarnation && row.Supports == said.supports && row.Build == said.build
}

// raiseFeature proposes the highest level that every controller knows, by its
// word of this epoch. There is no way down.
func (c *Controller) raiseFeature(ctx context.Context, m *membership, members []raftnode.Member) {
	view := c.machine.View()
	if len(view.Members()) != len(members) {
		return // one that is gone is still on record, and has a say
	}
	level := uint32(0)
	var ids []string
	for _, member := range members {
		ids = append(ids, member.ID)
		said, ok := c.wordOf(member.ID)
		if !ok || !agrees(c.memberRow(member.ID), said) {
			return
		}
		if level == 0 || said.supports < level {
			level = said.supports
		}
	}
	if level <= max(view.FeatureLevel(), m.raised) {
		return
	}
	result, _, err := c.propose(ctx, &command.FeatureRaise{Level: level, Members: ids})
	switch {
	case err != nil:
		c.log.Info("feature level not raised yet", "level", level, "err", err)
	case result.Code != command.OK:
		m.raised = level
		c.log.Warn("feature level not raised", "level", level, "code", result.Code, "why", result.Message)
	default:
		m.raised = level
		c.log.Info("feature level raised", "level", level)
	}
}

// noteLevel keeps the table's feature level beside the log, so that a build that
// does not know it is refused before it takes part in anything.
func (c *Controller) noteLevel() {
	level := c.machine.View().FeatureLevel()
	c.goes(func() {
		if err := c.identity.RaiseLevel(level); err != nil {
			c.log.Warn("the feature level is not noted in the data directory", "level", level, "err", err)
		}
	})
}

// checkLevel refuses a data directory whose state this build does not know.
func checkLevel(identity *raftnode.Identity, knows uint32) error {
	if level := identity.Level(); level > knows {
		return fmt.Errorf("the cluster of this data directory is at feature level %d and this build knows %d; start the build that the other controllers run", level, knows)
	}
	return nil
}
