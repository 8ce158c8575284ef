package controller

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcd/api"
)

// outboxModel is a few nodes that apply one log of webhooks, die, start from
// their disk, get snapshots and lead in turn; told is what a receiver got.
type outboxModel struct {
	t     *testing.T
	rand  *rand.Rand
	log   []bool // entry → whether a webhook comes of it
	nodes []*outboxNode
	told  map[uint64]bool
	gaps  [][2]api.Place // told
}

type outboxNode struct {
	*outbox
	applied  uint64
	disk     []byte // of webhooks.json
	snapshot uint64
	compact  uint64 // what the log is cut off up to
}

func (m *outboxModel) take(n *outboxNode, index uint64) {
	var found []api.OwedWebhook
	if m.log[index-1] {
		found = []api.OwedWebhook{{ID: api.PlaceOf(1, index, 0), Event: "device_unhealthy"}}
	}
	n.outbox.take(found, api.PlaceAfter(1, index))
	n.applied = index
}

func (n *outboxNode) save(t *testing.T) {
	t.Helper()
	ledger, _, _ := n.copied()
	raw, err := json.Marshal(ledger)
	if err != nil {
		t.Fatal(err)
	}
	n.disk = raw
}

func (n *outboxNode) restart(t *testing.T) {
	t.Helper()
	var kept api.WebhookLedger
	if err := json.Unmarshal(n.disk, &kept); err != nil {
		t.Fatal(err)
	}
	n.outbox = newOutbox(&kept)
	if n.applied = n.snapshot; n.snapshot > 0 {
		n.skip(api.PlaceAfter(1, n.snapshot), 0)
	}
}

// lead makes a node send a few webhooks and tell the others, or not.
func (m *outboxModel) lead(n *outboxNode, reach func() bool) {
	for n.applied < uint64(len(m.log)) {
		m.take(n, n.applied+1)
	}
	var peers []api.WebhookLedger
	for _, p := range m.nodes {
		if p != n && reach() {
			ledger, _, _ := p.copied()
			peers = append(peers, ledger)
		}
	}
	n.takeOver(peers)
	if !slices.IsSortedFunc(n.ledger.Owed, func(a, b api.OwedWebhook) int {
		if b.ID.Above(a.ID) {
			return -1
		}
		return 1 // twice is no order either
	}) {
		m.t.Fatalf("owed are %v", n.ledger.Owed)
	}
	last := api.Place{}
	for range m.rand.IntN(4) {
		w, owed, _ := n.next()
		if !owed {
			break
		}
		if !w.ID.Above(last) {
			m.t.Fatalf("%v was sent after %v", w.ID, last)
		}
		if last = w.ID; w.From != nil {
			m.gaps = append(m.gaps, [2]api.Place{*w.From, w.ID})
		}
		for i, tells := range m.log {
			if tells && w.ID == api.PlaceOf(1, uint64(i+1), 0) {
				m.told[uint64(i+1)] = true
			}
		}
		n.sent(w.ID)
	}
	for _, p := range m.nodes {
		if p != n && reach() {
			p.sent(*n.mark())
		}
	}
	n.leads(false)
}

// check fails for a webhook that nobody was told and nobody owes.
func (m *outboxModel) check(what string) {
	m.t.Helper()
	leader := m.nodes[0]
	m.lead(leader, func() bool { return true })
	for {
		w, owed, _ := leader.next()
		if !owed {
			break
		}
		if w.From != nil {
			m.gaps = append(m.gaps, [2]api.Place{*w.From, w.ID})
		}
		for i := range m.log {
			if w.ID == api.PlaceOf(1, uint64(i+1), 0) {
				m.told[uint64(i+1)] = true
			}
		}
		leader.sent(w.ID)
	}
	for i, tells := range m.log {
		at, index := api.PlaceOf(1, uint64(i+1), 0), uint64(i+1)
		if !tells || m.told[index] {
			continue
		}
		excused := false
		for _, g := range m.gaps {
			excused = excused || at.Above(g[0]) && !at.Above(g[1])
		}
		if !excused {
			m.t.Fatalf("%s: the webhook of entry %d was never told, and no gap says so", what, index)
		}
	}
}

// TestNoWebhookIsLostWhoeverDiesAndWhoeverLeads: with all the data directories
// there is not even a gap.
func TestNoWebhookIsLostWhoeverDiesAndWhoeverLeads(t *testing.T) {
	for seed := range uint64(2000) {
		m := &outboxModel{t: t, rand: rand.New(rand.NewPCG(seed, 5)), told: map[uint64]bool{}}
		for range 3 {
			n := &outboxNode{outbox: newOutbox(nil)}
			n.begin(api.Place{})
			n.save(t)
			m.nodes = append(m.nodes, n)
		}
		wiped := false
		for range 60 {
			n := m.nodes[m.rand.IntN(3)]
			switch m.rand.IntN(9) {
			case 0, 1, 2:
				m.log = append(m.log, m.rand.IntN(2) == 0)
			case 3:
				if n.applied < uint64(len(m.log)) {
					m.take(n, n.applied+1)
				}
			case 4:
				n.save(t) // before the snapshot, as keptSnapshot does
				n.snapshot = n.applied
			case 5:
				n.save(t)
			case 6:
				n.restart(t)
			case 7:
				m.lead(n, func() bool { return m.rand.IntN(3) > 0 })
			case 8:
				if seed%2 == 1 && m.rand.IntN(10) == 0 { // a new data directory, and a snapshot of a leader
					n.outbox = newOutbox(nil)
					n.begin(api.Place{})
					n.snapshot = uint64(len(m.log))
					n.save(t)
					n.restart(t)
					wiped = true
				}
			}
		}
		m.check(fmt.Sprintf("seed %d", seed))
		if !wiped && len(m.gaps) > 0 {
			t.Fatalf("seed %d: a gap %v, though every directory was kept", seed, m.gaps[0])
		}
	}
}

func TestAnOutboxIsBoundedAndSaysWhatItDropped(t *testing.T) {
	text, err := os.ReadFile("../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	row := fmt.Sprintf("| webhooks that are owed | %d,%03d, and %d MiB |", maxOwed/1000, maxOwed%1000, maxOwedBytes>>20)
	if !strings.Contains(string(text), row) {
		t.Errorf("docs/limits.md does not say %q", row)
	}
	o := newOutbox(nil)
	o.begin(api.Place{})
	const n = 3 * maxOwed
	for i := uint64(1); i <= n; i++ {
		o.take([]api.OwedWebhook{{ID: api.PlaceOf(1, i, 0), Reason: "ECC"}}, api.PlaceAfter(1, i))
	}
	next := uint64(1)
	for i := 0; ; i++ {
		if left, _ := o.waiting(); left > maxOwed {
			t.Fatalf("%d are kept", left)
		}
		w, owed, _ := o.next()
		if !owed {
			break
		}
		switch {
		case w.From == nil:
			if w.ID != api.PlaceOf(1, next, 0) {
				t.Fatalf("%v comes where %d does", w.ID, next)
			}
			next++
		case i > 0 || *w.From != (api.Place{}):
			t.Fatalf("a gap from %v to %v in place %d", *w.From, w.ID, i)
		default:
			for w.ID.Above(api.PlaceOf(1, next-1, 0)) {
				next++
			}
		}
		o.sent(w.ID)
	}
	if next != n+1 {
		t.Errorf("it ends before %d of %d", next, n)
	}
}

func TestAMassOfLongReasonsIsBoundedInBytes(t *testing.T) {
	o := newOutbox(nil)
	o.begin(api.Place{})
	long := string(make([]byte, maxWebhookReason))
	for i := uint64(1); i <= maxOwed; i++ {
		o.take([]api.OwedWebhook{{ID: api.PlaceOf(1, i, 0), Reason: long}}, api.PlaceAfter(1, i))
	}
	if o.bytes > maxOwedBytes {
		t.Errorf("%d bytes are kept", o.bytes)
	}
	w, _, _ := o.next()
	if w.From == nil {
		t.Error("what was dropped is not told as a gap")
	}
}

// TestWebhooksFromBeforeTheyWereTurnedOnAreNotOwed, and whoever was given the
// URL last must not make those forget who were given it first.
func TestWebhooksFromBeforeTheyWereTurnedOnAreNotOwed(t *testing.T) {
	early, late := newOutbox(nil), newOutbox(nil)
	early.begin(api.PlaceAfter(1, 3))
	late.begin(api.PlaceAfter(1, 7))
	for i := uint64(1); i <= 9; i++ {
		for _, o := range []*outbox{early, late} {
			o.take([]api.OwedWebhook{{ID: api.PlaceOf(1, i, 0)}}, api.PlaceAfter(1, i))
		}
	}
	ledger, _, _ := early.copied()
	late.takeOver([]api.WebhookLedger{ledger})
	for i := uint64(4); i <= 9; i++ {
		w, _, _ := late.next()
		if w.From != nil || w.ID != api.PlaceOf(1, i, 0) {
			t.Fatalf("%+v comes where %d does", w, i)
		}
		late.sent(w.ID)
	}
}

// TestTheFileOfOwedWebhooksIsFrozen: a controller of a later release reads it.
func TestTheFileOfOwedWebhooksIsFrozen(t *testing.T) {
	const golden = "testdata/webhooks.json"
	from := api.PlaceAfter(1, 40)
	o := newOutbox(&api.WebhookLedger{
		Version: api.WebhookVersion, Known: true, Sent: api.PlaceOf(1, 40, 2), Last: api.PlaceAfter(2, 99),
		Owed: []api.OwedWebhook{
			gap(from, api.PlaceAfter(1, 52), 1_700_000_000_000),
			{ID: api.PlaceOf(2, 60, 1), Event: "watchdog_trip", Device: "box:gpu0", Job: "j-7", Reason: "idle: no output for 5m0s", AtMS: 1_700_000_001_250},
		},
	})
	w := &webhooks{outbox: o, path: filepath.Join(t.TempDir(), webhooksFile)}
	if err := w.save(true); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(w.path)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("written\n%s\nwant\n%s", got, want)
	}
	kept, err := readLedger(golden)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := json.Marshal(kept)
	ledger, _, _ := o.copied()
	if first, _ := json.Marshal(ledger); string(first) != string(again) {
		t.Errorf("read as\n%s\nwant\n%s", again, first)
	}
}

func TestADamagedFileOfWebhooksKeepsNoControllerDown(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, webhooksFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWebhooks(Config{DataDir: dir, WebhookURL: "http://127.0.0.1:1"}, Deps{Logger: quiet}, false)
	w.outbox.begin(api.PlaceAfter(1, 50)) // the log's end
	w.outbox.take([]api.OwedWebhook{{ID: api.PlaceOf(1, 9, 0)}}, api.PlaceAfter(1, 9))
	if next, owed, _ := w.outbox.next(); !owed || next.ID != api.PlaceOf(1, 9, 0) {
		t.Errorf("%+v, %v; what may not have been sent is sent again", next, owed)
	}
}

// TestALeaderWithANewDirectoryHasWebhooksFromTheOthers, but for those that
// nobody has any more.
func TestALeaderWithANewDirectoryHasWebhooksFromTheOthers(t *testing.T) {
	peer, fresh := newOutbox(nil), newOutbox(nil)
	peer.begin(api.Place{})
	fresh.begin(api.Place{})
	peer.sent(api.PlaceOf(1, 2, 0))
	peer.skip(api.PlaceAfter(1, 4), 7) // it was away
	for i := uint64(5); i <= 8; i++ {
		peer.take([]api.OwedWebhook{{ID: api.PlaceOf(1, i, 0)}}, api.PlaceAfter(1, i))
	}
	fresh.skip(api.PlaceAfter(1, 6), 9)
	for i := uint64(7); i <= 8; i++ {
		fresh.take([]api.OwedWebhook{{ID: api.PlaceOf(1, i, 0)}}, api.PlaceAfter(1, i))
	}
	ledger, _, _ := peer.copied()
	fresh.takeOver([]api.WebhookLedger{ledger})
	var got []string
	for _, w := range fresh.ledger.Owed {
		text := w.ID.String()
		if w.From != nil {
			text = w.From.String() + " to " + text
		}
		got = append(got, text)
	}
	if want := []string{"1-2-0 to 1-4", "1-5-0", "1-6-0", "1-7-0", "1-8-0"}; !slices.Equal(got, want) {
		t.Errorf("owed are %q, want %q", got, want)
	}
}
