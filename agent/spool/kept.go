package spool

// span is a range of offsets in a segment file and what that takes on disk.
type span struct {
	from, to int64 // offsets
	size     int64 // bytes on disk
}

// kept decides which segments stay. The head grows until its share is used up and then never changes; the tail loses its oldest segment whenever the
// next one might not fit.
type kept struct {
	headLimit, tailLimit int64
	floor                int64 // no segment that reaches beyond this offset is dropped

	headSize int64
	headDone bool
	tail     []span
	tailSize int64
}

// headIsFull tells whether a record of that size would not fit the head's share any more, and from then on the tail is being written.
func (k *kept) headIsFull(size int64) bool {
	if !k.headDone && k.headSize+size > k.headLimit {
		k.headDone = true
		return true
	}
	return false
}

// begin notes a new segment with its header, and returns what must go, oldest first, so that it may grow to the full size of a segment.
func (k *kept) begin(start, header, full int64) []span {
	if !k.headDone && k.headSize+header >= k.headLimit {
		k.headDone = true
	}
	if !k.headDone {
		k.headSize += header
		return nil
	}
	var drop []span
	for len(k.tail) > 0 && k.tailSize+full > k.tailLimit && k.tail[0].to <= k.floor {
		drop = append(drop, k.tail[0])
		k.tailSize -= k.tail[0].size
		k.tail = k.tail[1:]
	}
	k.tail = append(k.tail, span{from: start, to: start, size: header})
	k.tailSize += header
	return drop
}

// grow notes a record in the segment that was begun last.
func (k *kept) grow(size int64) {
	if len(k.tail) == 0 {
		k.headSize += size
		return
	}
	k.tail[len(k.tail)-1].size += size
	k.tailSize += size
}

// end notes where the segment that was begun last ends.
func (k *kept) end(at int64) {
	if len(k.tail) > 0 {
		k.tail[len(k.tail)-1].to = at
	}
}

// undo takes back a segment that was begun and holds no record.
func (k *kept) undo() {
	if len(k.tail) == 0 {
		k.headSize -= segmentHeaderSize
		return
	}
	k.tailSize -= k.tail[len(k.tail)-1].size
	k.tail = k.tail[:len(k.tail)-1]
}

// restore takes over the segments that another Writer has left, ascending. Those at the beginning that fit its share are the head.
func (k *kept) restore(left []span) {
	next := int64(0)
	for _, s := range left {
		if !k.headDone && s.from == next && k.headSize+s.size <= k.headLimit {
			k.headSize += s.size
			next = s.to
			continue
		}
		k.headDone = true
		k.tail = append(k.tail, s)
		k.tailSize += s.size
	}
}
