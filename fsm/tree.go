package fsm

import (
	"cmp"

	"github.com/tidwall/btree"
)

// treeDegree sets how many keys a node has: at most twice as many less one. An
// entry copies the path to whatever it writes in every tree, so nodes are small:
// at the library's 32 an entry wrote 48 KB where this writes 28, in the same
// time alone and in less beside the garbage collector; below 8 the nodes
// themselves cost more than their keys.
const treeDegree = 8

// part is one tree of a View: a table or an index.
type part interface {
	// publish makes dst, the same part of a View to be published, share this
	// part's present content; last is the part of the View published before.
	publish(dst, last part)
	// restore goes back to the content of last.
	restore(last part)
}

// table holds immutable rows by key. Its rows count in the digest.
type table[K cmp.Ordered, V any] struct {
	id      tableID
	tree    *btree.Map[K, *cell[V]]
	changed bool
	dirty   []K // keys changed by the entry in hand, or by the last one; with repeats
}

// cell is a row and its share of the digest, computed once at the end of the
// entry that wrote the row.
type cell[V any] struct {
	row    V
	sum    Digest
	sealed bool
}

func newTable[K cmp.Ordered, V any](id tableID) table[K, V] {
	return table[K, V]{id: id, tree: btree.NewMap[K, *cell[V]](treeDegree)}
}

// get returns the row, which must not be written, or nil.
func (t *table[K, V]) get(key K) *V {
	c, ok := t.tree.Get(key)
	if !ok {
		return nil
	}
	return &c.row
}

func (t *table[K, V]) len() int { return t.tree.Len() }

// scan visits rows by ascending key, from the first, until visit returns false.
func (t *table[K, V]) scan(visit func(K, *V) bool) {
	t.tree.Scan(func(k K, c *cell[V]) bool { return visit(k, &c.row) })
}

// ascend is scan from the first key at or above from.
func (t *table[K, V]) ascend(from K, visit func(K, *V) bool) {
	t.tree.Ascend(from, func(k K, c *cell[V]) bool { return visit(k, &c.row) })
}

// put stores a copy of row and returns it and the row it replaces, or nil.
func (t *table[K, V]) put(digest *Digest, key K, row V) (now, old *V) {
	c := &cell[V]{row: row}
	was, _ := t.tree.Set(key, c)
	t.touch(digest, key, was)
	if was != nil {
		old = &was.row
	}
	return &c.row, old
}

// remove drops a row and returns it, or nil.
func (t *table[K, V]) remove(digest *Digest, key K) *V {
	was, ok := t.tree.Delete(key)
	if !ok {
		return nil
	}
	t.touch(digest, key, was)
	return &was.row
}

// touch takes the share of the old row out of the digest, once an entry.
func (t *table[K, V]) touch(digest *Digest, key K, was *cell[V]) {
	t.changed = true
	t.dirty = append(t.dirty, key)
	if was != nil && was.sealed {
		digest.sub(was.sum)
	}
}

// seal adds the shares of the rows this entry wrote.
func (t *table[K, V]) seal(digest *Digest, h *hasher) {
	for _, key := range t.dirty {
		c, ok := t.tree.Get(key)
		if !ok || c.sealed {
			continue
		}
		c.sum = hashRow(h, t.id, key, &c.row)
		c.sealed = true
		digest.add(c.sum)
	}
}

func (t *table[K, V]) publish(dst, last part) {
	d := dst.(*table[K, V])
	d.dirty = nil
	if t.changed {
		d.tree = t.tree.IsoCopy()
		d.changed, t.changed = false, false
	} else {
		d.tree = last.(*table[K, V]).tree
	}
}

func (t *table[K, V]) restore(last part) {
	t.dirty = t.dirty[:0]
	if t.changed {
		t.tree = last.(*table[K, V]).tree.IsoCopy()
		t.changed = false
	}
}

// index is an ordered set of keys that follow from rows. It is not in the
// digest and not in snapshots.
type index[K any] struct {
	tree    *btree.BTreeG[K]
	changed bool
}

func newIndex[K any](less func(a, b K) bool) index[K] {
	return index[K]{tree: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true, Degree: treeDegree})}
}

func (x *index[K]) len() int { return x.tree.Len() }

// add breaks an invariant when the key is there already.
func (x *index[K]) add(key K) {
	x.changed = true
	if _, replaced := x.tree.Set(key); replaced {
		broken("index key added twice")
	}
}

// drop breaks an invariant when the key is not there.
func (x *index[K]) drop(key K) {
	x.changed = true
	if _, deleted := x.tree.Delete(key); !deleted {
		broken("index key missing")
	}
}

// rank returns the number of keys below key, in a few comparisons whatever the
// length.
func (x *index[K]) rank(key K) int {
	low, high := 0, x.tree.Len()
	for low < high {
		middle := (low + high) / 2
		if k, _ := x.tree.GetAt(middle); x.tree.Less(k, key) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

func (x *index[K]) publish(dst, last part) {
	d := dst.(*index[K])
	if x.changed {
		d.tree = x.tree.IsoCopy()
		d.changed, x.changed = false, false
	} else {
		d.tree = last.(*index[K]).tree
	}
}

func (x *index[K]) restore(last part) {
	if x.changed {
		x.tree = last.(*index[K]).tree.IsoCopy()
		x.changed = false
	}
}

// tally counts things by name; names with nothing left are dropped.
type tally struct {
	tree    *btree.Map[string, int]
	changed bool
}

func newTally() tally { return tally{tree: btree.NewMap[string, int](treeDegree)} }

func (y *tally) change(name string, by int) {
	y.changed = true
	n, _ := y.tree.Get(name)
	switch n += by; {
	case n < 0:
		broken("tally below zero")
	case n == 0:
		y.tree.Delete(name)
	default:
		y.tree.Set(name, n)
	}
}

func (y *tally) publish(dst, last part) {
	d := dst.(*tally)
	if y.changed {
		d.tree = y.tree.IsoCopy()
		d.changed, y.changed = false, false
	} else {
		d.tree = last.(*tally).tree
	}
}

func (y *tally) restore(last part) {
	if y.changed {
		y.tree = last.(*tally).tree.IsoCopy()
		y.changed = false
	}
}
