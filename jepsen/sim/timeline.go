package sim

import "time"

// event is something that will happen at a virtual time. Ties happen in the
// order in which they were made.
type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

// timeline is a heap of events, the next one first.
type timeline struct {
	heap []event
	seq  uint64
}

func (t *timeline) less(i, j int) bool {
	a, b := &t.heap[i], &t.heap[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

func (t *timeline) push(at time.Duration, do func()) {
	t.seq++
	t.heap = append(t.heap, event{at, t.seq, do})
	for i := len(t.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !t.less(i, parent) {
			break
		}
		t.heap[i], t.heap[parent] = t.heap[parent], t.heap[i]
		i = parent
	}
}

func (t *timeline) pop() event {
	first, last := t.heap[0], len(t.heap)-1
	t.heap[0] = t.heap[last]
	t.heap[last] = event{}
	t.heap = t.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return first
		}
		if child+1 < last && t.less(child+1, child) {
			child++
		}
		if !t.less(child, i) {
			return first
		}
		t.heap[i], t.heap[child] = t.heap[child], t.heap[i]
		i = child
	}
}
