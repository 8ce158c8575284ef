package client

import (
	"fmt"
	"strings"
	"time"
)

// When a search for a controller is worth a word. A client that has never
// reached anybody speaks soon, because its addresses may be wrong; later an
// election should pass without one.
const (
	firstWaitNotice = 3 * time.Second
	waitNotice      = 20 * time.Second
)

// NoticeKind says what a Notice is about.
type NoticeKind int

const (
	// NoticeResumed: output goes on through another node, or through the same
	// one after a change of leader. One per change.
	NoticeResumed NoticeKind = iota + 1
	// NoticeWaiting: no controller has answered for some time, and the client
	// goes on trying. One per outage.
	NoticeWaiting
)

// Notice is what a person should know about the way to the cluster. Nothing is
// lost when one is not read.
type Notice struct {
	Kind NoticeKind
	// From and To name the nodes of a resumed stream, by ID where known.
	From, To string
	// Moved: the node was alive and sent the reader on; it was the leader that
	// changed.
	Moved bool
	// After is how long output stood still, or how long nobody has answered.
	After time.Duration
	// Patience is how long a waiting client will look in all.
	Patience time.Duration
	// Failures are those of the nodes asked, for NoticeWaiting.
	Failures []Failure
}

// String returns one line without an end of line.
func (n Notice) String() string {
	if n.Kind == NoticeWaiting {
		var nodes []string
		for _, f := range n.Failures {
			nodes = append(nodes, f.Address+": "+Why(f.Err))
		}
		return fmt.Sprintf("no controller answers yet (%s); trying for up to %s", strings.Join(nodes, "; "), short(n.Patience))
	}
	switch {
	case n.Moved:
		return fmt.Sprintf("the leader changed; output resumed through %s after %s", n.To, short(n.After))
	case n.From == n.To:
		return fmt.Sprintf("lost contact with %s, resumed after %s", n.From, short(n.After))
	}
	return fmt.Sprintf("lost contact with %s, resumed on %s after %s", n.From, n.To, short(n.After))
}

// tell hands a notice on.
func (c *Client) tell(n Notice) {
	if c.notify == nil {
		return
	}
	c.notifying.Lock()
	defer c.notifying.Unlock()
	c.notify(n)
}
