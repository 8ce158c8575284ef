package scheduler

import (
	"slices"

	"github.com/tidwall/btree"

	"rcd/model/selector"
)

// class holds the queued jobs with one target: a pinned device or a selector.
// Inside it jobs are kept by band, so that whoever tolerates one job of a band
// tolerates all of them.
type class struct {
	key      string
	pinned   string // device ID, or ""
	selector selector.Selector
	matched  bitset // slots of matching devices; unused when pinned
	stable   bitset // the same without the terms on volatile labels
	allows   int64  // see Allows; unused when pinned, and out of date when stale
	stale    bool
	jobs     int
	bands    []*band // ascending by edge, none empty
	dirty    bool    // listed in Scheduler.dirty
	touched  bool    // listed in Scheduler.touched
}

// band holds the jobs of a class whose runtime lies above the next smaller
// ceiling of the fleet and at most at edge.
type band struct {
	edge int64 // a ceiling, 0 (no runtime asked) or noCeiling
	jobs *btree.BTreeG[place]
}

type place struct {
	order   Order
	runtime int64
}

// noCeiling is the edge of jobs that only a device without a ceiling tolerates.
const noCeiling = Unlimited

func newBand(edge int64) *band {
	less := func(a, b place) bool { return a.order.Less(b.order) }
	return &band{edge: edge, jobs: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

// toleratedBy reports whether a device with this ceiling may run the band.
func (b *band) toleratedBy(ceilingS int64) bool {
	return ceilingS == 0 || b.edge <= ceilingS
}

func (b *band) head() Order {
	p, _ := b.jobs.Min()
	return p.order
}

func (c *class) find(edge int64) (int, bool) {
	return slices.BinarySearchFunc(c.bands, edge, func(b *band, edge int64) int {
		switch {
		case b.edge < edge:
			return -1
		case b.edge > edge:
			return 1
		}
		return 0
	})
}

// add returns false when the place is taken.
func (c *class) add(o Order, edge, runtime int64) bool {
	i, ok := c.find(edge)
	if !ok {
		c.bands = slices.Insert(c.bands, i, newBand(edge))
	}
	if _, replaced := c.bands[i].jobs.Set(place{o, runtime}); replaced {
		return false
	}
	c.jobs++
	return true
}

// remove returns false when the place is empty.
func (c *class) remove(o Order, edge int64) bool {
	i, ok := c.find(edge)
	if !ok {
		return false
	}
	if _, deleted := c.bands[i].jobs.Delete(place{order: o}); !deleted {
		return false
	}
	if c.bands[i].jobs.Len() == 0 {
		c.bands = slices.Delete(c.bands, i, i+1)
	}
	c.jobs--
	return true
}

// bandEdge returns the edge of the band in which a runtime belongs.
func (s *Scheduler) bandEdge(runtime int64) int64 {
	if runtime <= 0 {
		return 0
	}
	if i, _ := slices.BinarySearch(s.ceiling, runtime); i < len(s.ceiling) {
		return s.ceiling[i]
	}
	return noCeiling
}

// addCeiling makes a ceiling an edge of bands and splits the bands it cuts.
// Edges are never taken away: one too many costs a comparison and decides
// nothing, and fleets have few distinct ceilings.
func (s *Scheduler) addCeiling(ceiling int64) {
	if ceiling <= 0 {
		return
	}
	i, ok := slices.BinarySearch(s.ceiling, ceiling)
	if ok {
		return
	}
	above := s.bandEdge(ceiling)
	s.ceiling = slices.Insert(s.ceiling, i, ceiling)
	s.classes.Scan(func(_ string, c *class) bool {
		c.split(above, ceiling)
		return true
	})
}

// split moves the jobs of the band at edge above that need at most ceiling
// into a band of their own.
func (c *class) split(above, ceiling int64) {
	i, ok := c.find(above)
	if !ok {
		return
	}
	low, high := newBand(ceiling), newBand(above)
	c.bands[i].jobs.Scan(func(p place) bool {
		if p.runtime <= ceiling {
			low.jobs.Set(p)
		} else {
			high.jobs.Set(p)
		}
		return true
	})
	both := make([]*band, 0, 2)
	for _, b := range []*band{low, high} {
		if b.jobs.Len() > 0 {
			both = append(both, b)
		}
	}
	c.bands = slices.Replace(c.bands, i, i+1, both...)
}
