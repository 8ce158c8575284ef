package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"rcd/wire"
)

// factTable is what a node's table has of the host's facts. Guarded by node.mu.
type factTable struct {
	held    wire.Facts
	told    []wire.Facts
	refuse  *Refusal
	failing bool
	unsure  bool // takes what it says that it has not
	faults  []wire.DeviceFault
}

func (n *node) Facts(_ context.Context, _, _ string, f wire.Facts) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.table.told = append(n.table.told, f)
	switch {
	case n.table.failing:
		return 0, errors.New("no quorum")
	case n.table.refuse != nil:
		return 0, n.table.refuse
	}
	for _, d := range f.Labels {
		n.table.held.Labels = append(slices.DeleteFunc(n.table.held.Labels, func(x wire.DeviceFacts) bool { return x.Name == d.Name }), d)
	}
	for _, s := range f.Sheets {
		n.table.held.Sheets = append(slices.DeleteFunc(n.table.held.Sheets, func(x wire.SheetText) bool { return x.Name == s.Name }), s)
	}
	if n.table.unsure {
		return 0, errors.New("outcome unknown")
	}
	return n.index, nil
}

// told returns the messages that the node was sent, with their names.
func (n *node) told() (out []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.table.told {
		var names []string
		for _, d := range f.Labels {
			names = append(names, d.Name)
		}
		for _, s := range f.Sheets {
			names = append(names, "sheet "+s.Name)
		}
		out = append(out, strings.Join(names, ","))
	}
	return out
}

func (n *node) holds(f wire.Facts) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return bytes.Equal(n.table.held.Digest(), f.Digest())
}

func (h *host) Facts() wire.Facts { h.mu.Lock(); defer h.mu.Unlock(); return h.facts }

func (h *host) know(f wire.Facts) {
	h.mu.Lock()
	h.facts = f
	h.mu.Unlock()
	h.change()
}

func facts(cpus, sheet string) wire.Facts {
	label := []wire.LabelKV{{Key: "cpus", Value: cpus}}
	return wire.Facts{
		Labels: []wire.DeviceFacts{{Name: "gpu0", Detected: label}, {Name: "gpu1", Detected: []wire.LabelKV{{Key: "cpus", Value: "8"}}}},
		Sheets: []wire.SheetText{{Body: sheet}, {Name: "gpu0"}},
	}
}

func TestFactsReachTheTableOnceAndEachChange(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		h := newHost()
		w.agent("i1", h, "c1")
		within(t, time.Second, "attached", func() bool { return c1.contact().Attached })
		h.know(facts("8", "read me"))
		within(t, time.Second, "told", func() bool { return c1.holds(facts("8", "read me")) })
		time.Sleep(time.Minute)
		h.know(facts("16", "read me"))
		within(t, time.Second, "change told", func() bool { return c1.holds(facts("16", "read me")) })
		h.know(facts("16", ""))
		within(t, time.Second, "sheet gone", func() bool { return c1.holds(facts("16", "")) })
		h.change()
		time.Sleep(time.Minute)
		if got := c1.told(); !slices.Equal(got, []string{"gpu0,gpu1,sheet ,sheet gpu0", "gpu0", "sheet "}) {
			t.Errorf("told %q", got)
		}
	})
}

// The log may have taken what nobody has answered for.
func TestAFactThatWentBackBeforeAnyAnswerIsToldAgain(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		h := newHost()
		h.facts = facts("8", "read me")
		w.agent("i1", h, "c1")
		within(t, time.Second, "told", func() bool { return c1.holds(facts("8", "read me")) })
		time.Sleep(time.Second)
		unsure := func(is bool) { c1.mu.Lock(); c1.table.unsure = is; c1.mu.Unlock() }
		unsure(true)
		h.know(facts("16", "read me"))
		within(t, time.Second, "taken", func() bool { return c1.holds(facts("16", "read me")) })
		h.know(facts("8", "read me"))
		unsure(false)
		within(t, 30*time.Second, "told again", func() bool { return c1.holds(facts("8", "read me")) })
	})
}

func TestANextLeaderIsToldOnlyWhatMayDiffer(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1, c2 := w.node("c1"), w.node("c2")
		w.lead(c1, 5)
		h := newHost()
		h.facts = facts("8", "read me")
		w.agent("i1", h, "c1", "c2")
		within(t, time.Second, "told", func() bool { return c1.holds(h.Facts()) })
		c2.table.held = facts("8", "read me") // the log has brought it
		w.lead(c2, 6)
		within(t, 5*time.Second, "attached", func() bool { return c2.contact().Attached })
		time.Sleep(30 * time.Second)
		if got := c2.told(); len(got) != 0 {
			t.Errorf("told %q although the table has it", got)
		}
		// A table that was set back is told all of it.
		c1.table.held = facts("4", "an old one")
		w.lead(c1, 7)
		within(t, 5*time.Second, "told again", func() bool { return c1.holds(h.Facts()) })
		// What changes while nobody leads is told as it is then.
		c1.roles.Set(Role{Term: 8})
		c1.stopped()
		h.know(facts("9", "x"))
		h.know(facts("10", "y"))
		w.lead(c2, 9)
		within(t, 5*time.Second, "told to the next", func() bool { return c2.holds(facts("10", "y")) })
		if got := c2.told(); len(got) != 1 {
			t.Errorf("told %q", got)
		}
	})
}

func TestFactsAreSaidAgainUntilTheyAreAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		c1.table.failing = true
		h := newHost()
		h.facts = facts("8", "")
		w.agent("i1", h, "c1")
		time.Sleep(20 * time.Second)
		if n := len(c1.told()); n < 2 || n > 5 {
			t.Errorf("said %d times in 20 s", n)
		}
		c1.mu.Lock()
		c1.table.failing = false
		c1.mu.Unlock()
		within(t, 11*time.Second, "taken", func() bool { return c1.holds(h.Facts()) })
		if c1.hellos() != 1 {
			t.Errorf("%d sessions", c1.hellos())
		}
	})
}

func TestRefusedFactsAreNotSaidAgainBeforeTheyChange(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		c1.table.refuse = &Refusal{"sheet_too_large", "shorten it"}
		h := newHost()
		h.facts = facts("8", "long")
		w.agent("i1", h, "c1")
		time.Sleep(time.Minute)
		if got := c1.told(); len(got) != 1 {
			t.Fatalf("told %q", got)
		}
		c1.mu.Lock()
		c1.table.refuse = nil
		c1.mu.Unlock()
		h.know(facts("8", "short"))
		time.Sleep(time.Minute)
		if got := c1.told(); !slices.Equal(got[1:], []string{"sheet "}) {
			t.Errorf("told %q", got)
		}
	})
}

func TestManyFactsGoInPieces(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		c1 := w.node("c1")
		w.lead(c1, 5)
		h := newHost()
		for i := range 10 {
			h.facts.Sheets = append(h.facts.Sheets, wire.SheetText{Name: fmt.Sprint("gpu", i), Body: strings.Repeat("x", 60_000)})
		}
		w.agent("i1", h, "c1")
		within(t, time.Second, "five messages", func() bool { return len(c1.told()) == 5 })
		time.Sleep(time.Minute)
		if n := len(c1.told()); n != 5 || !c1.holds(h.Facts()) {
			t.Errorf("%d messages, or not all of it", n)
		}
	})
}

// TestSheetsGoTogether: the table refuses sheets that come to too much in all,
// so one that grows must not come before another that gives up its room.
func TestSheetsGoTogether(t *testing.T) {
	var held wire.Facts
	for n := range 4 {
		held.Labels = append(held.Labels, wire.DeviceFacts{Name: fmt.Sprint("gpu", n), Detected: []wire.LabelKV{{Key: "k", Value: strings.Repeat("x", 25<<10)}}})
		held.Sheets = append(held.Sheets, wire.SheetText{Name: fmt.Sprint("gpu", n), Body: strings.Repeat("y", 16<<10)})
	}
	b := &FactBook{confirmed: map[factKey]string{}}
	first := b.Next(held, time.Now())
	if len(first.Labels) != 4 || len(first.Sheets) != 0 {
		t.Errorf("first %d sets and %d sheets", len(first.Labels), len(first.Sheets))
	}
	b.Answered(first.Seq)
	if second := b.Next(held, time.Now()); len(second.Labels) != 0 || len(second.Sheets) != 4 {
		t.Errorf("then %d sets and %d sheets", len(second.Labels), len(second.Sheets))
	}
}

func TestTheDigestOfFactsDoesNotSeeTheirOrder(t *testing.T) {
	a := facts("8", "s")
	b := wire.Facts{Labels: slices.Clone(a.Labels), Sheets: slices.Clone(a.Sheets), Seq: 9}
	slices.Reverse(b.Labels)
	slices.Reverse(b.Sheets)
	b.Labels = append(b.Labels, wire.DeviceFacts{Name: "none"})
	if !bytes.Equal(a.Digest(), b.Digest()) {
		t.Error("order, numbers or empty sets count")
	}
	for _, c := range []wire.Facts{facts("9", "s"), facts("8", ""), {}} {
		if bytes.Equal(a.Digest(), c.Digest()) {
			t.Errorf("%+v has the same digest", c)
		}
	}
}
