package relay

import (
	"context"
	"sync"
)

const (
	// DefaultWindow is what a relaying node holds for one reader: of the order
	// of what a fast link has in flight (DESIGN section 7: 1 to 4 MiB).
	DefaultWindow = 1 << 20

	// recordCost is charged for each record held, so that gaps and single
	// bytes are bounded too.
	recordCost = 64
)

// Conduit is a bounded queue of records between one writer, to whom it is a
// Sink, and one reader, to whom it is a Source. When it is full the writer
// waits: that is how a slow reader's pace reaches the sender two hops away.
type Conduit struct {
	window int
	// readable and writable hold a token when there may be something new.
	readable, writable chan struct{}

	mu      sync.Mutex // guards what follows
	queue   []Record
	held    int   // cost of queue
	failure error // what Next returns once the queue is empty
}

// NewConduit returns an empty conduit that holds about window bytes;
// DefaultWindow if window is not positive.
func NewConduit(window int) *Conduit {
	if window <= 0 {
		window = DefaultWindow
	}
	return &Conduit{window: window, readable: make(chan struct{}, 1), writable: make(chan struct{}, 1)}
}

// Take copies record into the conduit, and waits until there is room. A record
// larger than the whole window is let in when the conduit is empty. It returns
// the cause with which ctx ended, and has then not taken the record.
func (c *Conduit) Take(ctx context.Context, record Record) error {
	data, isData := record.(Data)
	for {
		c.mu.Lock()
		if c.held == 0 || c.held+recordCost+len(data.Bytes) <= c.window {
			if isData {
				c.push(data)
			} else {
				c.queue = append(c.queue, record)
				c.held += recordCost
			}
			c.mu.Unlock()
			signal(c.readable)
			return nil
		}
		c.mu.Unlock()
		select {
		case <-c.writable:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// push appends a copy of data, to the last record where the two are one piece.
func (c *Conduit) push(data Data) {
	if n := len(c.queue); n > 0 {
		last, isData := c.queue[n-1].(Data)
		_, to := c.queue[n-1].span()
		if isData && last.Stream == data.Stream && to == data.Offset && len(last.Bytes)+len(data.Bytes) <= coalesceBytes {
			last.Bytes = append(last.Bytes, data.Bytes...)
			c.queue[n-1] = last
			c.held += len(data.Bytes)
			return
		}
	}
	data.Bytes = append([]byte(nil), data.Bytes...)
	c.queue = append(c.queue, data)
	c.held += recordCost + len(data.Bytes)
}

// Fail makes Next return err once everything taken before has been read. Only
// the first call counts. It never blocks.
func (c *Conduit) Fail(err error) {
	c.mu.Lock()
	if c.failure == nil {
		c.failure = err
	}
	c.mu.Unlock()
	signal(c.readable)
}

// Next returns the oldest record and makes room for more. The caller owns it.
// Errors: what Fail was given, or the cause with which ctx ended.
func (c *Conduit) Next(ctx context.Context) (Record, error) {
	for {
		c.mu.Lock()
		if len(c.queue) > 0 {
			record := c.queue[0]
			c.queue[0] = nil
			c.queue = c.queue[1:]
			c.held -= recordCost
			if data, isData := record.(Data); isData {
				c.held -= len(data.Bytes)
			}
			c.mu.Unlock()
			signal(c.writable)
			return record, nil
		}
		failure := c.failure
		c.mu.Unlock()
		if failure != nil {
			return nil, failure
		}
		select {
		case <-c.readable:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// signal leaves a token for the one that may wait on ch.
func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
