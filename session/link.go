package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"rcd/wire"
)

const (
	// dialTimeout bounds one try, handshake included: a dead address must cost
	// little, there are others.
	dialTimeout = time.Second
	// pushWait is how long an agent stays on a follower that knows no leader.
	// An election takes about as long.
	pushWait = time.Second
	// backoffMin and backoffMax bound the pause after a failed try. A fleet
	// that lost its leader must not come back all at once, and still in time.
	backoffMin = 50 * time.Millisecond
	backoffMax = 500 * time.Millisecond
	// refusedPause follows a refusal, which only a person can mend.
	refusedPause = 5 * time.Second
	// welcomeTimeout bounds the wait between hello and welcome; the leader
	// gives up sooner.
	welcomeTimeout = admitTimeout + 5*time.Second
	// outcomeAgain is when an outcome that nobody acked is said again.
	outcomeAgain = 5 * time.Second
	// maxOrders bounds the orders that wait for the handler.
	maxOrders = 4096
)

// Handler is the host behind a Link. Methods may be called concurrently, and
// none but Order and ServeStream may block for long.
type Handler interface {
	// Hello returns what opens a session. Host, Instance and Protocol are set
	// by the link; Term and Index are raised to what it has seen.
	Hello() wire.Hello
	// Jobs returns everything that is supervised, and what ended without being
	// acked.
	Jobs() []wire.ReportedJob
	// Order obeys an order whose fence holds. Orders come one at a time and in
	// their order. The link sets Seq of the answer.
	Order(ctx context.Context, order wire.Order) wire.OrderAck
	// Outcomes returns the outcomes that nobody has acked.
	Outcomes() []wire.Outcome
	// Facts returns all that the host has to tell of its devices, in an order
	// that does not change: the labels of each device unless they are not known
	// yet, and each sheet that could be read, gone ones as empty. The link does
	// not write to it.
	Facts() wire.Facts
	// Faults returns the devices that a person must look at, as long as nobody
	// has acked that.
	Faults() []wire.DeviceFault
	// FaultAcked is given the leader's answer to a fault.
	FaultAcked(wire.FaultAck)
	// Changed is received from once Jobs, Outcomes, Facts or Faults have changed.
	Changed() <-chan struct{}
	// Acked says that an outcome may be forgotten.
	Acked(wire.OutcomeAck)
	// Controllers is given the list of controllers when it has changed.
	Controllers([]wire.Controller)
	// Welcomed is given each welcome, before any order that follows it.
	Welcomed(wire.Welcome)
	// Seen keeps the highest (generation, term) and index. It is durable when
	// it returns if the pair has risen: nothing of a new term is obeyed before.
	// It is called for each word of the leader, each answered heartbeat at
	// least, also when nothing has risen.
	Seen(generation, term, index uint64) error
	// ServeStream serves one byte stream that the leader opened, and closes it.
	// ctx ends with the bytes session.
	ServeStream(ctx context.Context, conn net.Conn)
}

// LinkConfig is what a Link needs.
type LinkConfig struct {
	Host     string
	Instance string
	// Addresses are the configured HOST:PORTs, Controllers the list as the
	// cluster last gave it. The latter are tried first.
	Addresses   []string
	Controllers []wire.Controller
	// Generation, Term and Index are the highest seen, from disk.
	Generation, Term, Index uint64
	// Dial opens an authenticated connection for control, or for bulk bytes.
	Dial   func(ctx context.Context, addr string, bulk bool) (net.Conn, error)
	Logger *slog.Logger
}

// Link is an agent's side: it keeps one control session to the leader, through
// every change of leadership.
type Link struct {
	config  LinkConfig
	handler Handler
	log     *slog.Logger
	book    *addressBook
	bulk    *bulkLink

	mu         sync.Mutex // guards what follows
	generation uint64
	term       uint64
	index      uint64
}

// NewLink returns a link that does nothing before Run.
func NewLink(config LinkConfig, handler Handler) *Link {
	return &Link{
		config: config, handler: handler, log: config.Logger,
		book:       newAddressBook(config.Addresses, config.Controllers),
		bulk:       &bulkLink{},
		generation: config.Generation, term: config.Term, index: config.Index,
	}
}

// Run keeps the session until ctx ends, and returns after every goroutine of
// the link. It may be called once.
func (l *Link) Run(ctx context.Context) {
	defer l.bulk.shut()
	pause := backoffMin
	for ctx.Err() == nil {
		addr := l.book.next()
		end := l.attempt(ctx, addr)
		if ctx.Err() != nil {
			return
		}
		l.note(addr, end)
		switch {
		case end.welcomed:
			pause = backoffMin
			if end.redirect != "" {
				continue
			}
		case end.redirect != "":
			// Followed at once; only a ring of redirects costs pauses.
			if l.book.follow() <= freeHops {
				continue
			}
		case errors.Is(end.err, errNoLeader):
			pause = backoffMin // it has waited already
		case end.refused != nil:
			sleep(ctx, jitter(refusedPause))
			continue
		}
		sleep(ctx, jitter(pause))
		pause = min(2*pause, backoffMax)
	}
}

// freeHops is how many redirects in a row are followed without a pause.
const freeHops = 4

// ending is how one try ended.
type ending struct {
	welcomed bool
	redirect string        // address to try next
	refused  *wire.Refused // by the controller
	err      error
	// unanswered: the dial failed.
	unanswered bool
}

func (l *Link) note(addr string, end ending) {
	switch {
	case end.refused != nil:
		l.book.failed(addr, false)
		l.log.Error("controller refuses this agent", "controller", addr, "code", end.refused.Code, "message", end.refused.Message)
	case end.redirect != "":
		l.book.lead(end.redirect)
		l.log.Debug("redirected", "controller", addr, "leader", end.redirect)
	case end.welcomed:
		l.book.failed(addr, false)
		l.log.Warn("control session ended", "controller", addr, "error", end.err)
	default:
		// Who merely knows no leader may be the next one.
		if !errors.Is(end.err, errNoLeader) {
			l.book.failed(addr, end.unanswered)
		}
		l.log.Debug("no session", "controller", addr, "error", end.err)
	}
}

// attempt is one try with one controller, from the dial to the session's end.
func (l *Link) attempt(ctx context.Context, addr string) ending {
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	conn, err := l.config.Dial(dialCtx, addr, false)
	cancel()
	if err != nil {
		return ending{err: err, unanswered: true}
	}
	defer conn.Close()
	t, err := newTransport(conn, controlProfile, true, l.log)
	if err != nil {
		return ending{err: err}
	}
	defer t.close()
	openCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	stream, err := t.open(openCtx)
	cancel()
	if err != nil {
		return ending{err: fmt.Errorf("open control stream: %w", err)}
	}
	return newLinkSession(l, addr, t, &messages{conn: stream}).run(ctx)
}

// hello returns the first message of a session.
func (l *Link) hello() wire.Hello {
	h := l.handler.Hello()
	l.mu.Lock()
	defer l.mu.Unlock()
	h.Protocol, h.Host, h.Instance = wire.AgentProtocol, l.config.Host, l.config.Instance
	h.Term, h.Index = max(h.Term, l.term), max(h.Index, l.index)
	// A controller of protocol 1 must be able to read this, to refuse it with a
	// sentence. The heartbeats say the limits.
	h.Jobs = slices.Clone(h.Jobs)
	for i := range h.Jobs {
		h.Jobs[i].MaxRuntimeS = 0
	}
	return h
}

// errStaleLeader: the peer speaks for a term below the highest seen.
var errStaleLeader = errors.New("the controller speaks for an old term")

// see raises the fence to what a leader says, durably if the term is new. It
// fails with errStaleLeader for an old one, and the fence is then untouched.
func (l *Link) see(generation, term, index uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if generation < l.generation || generation == l.generation && term < l.term {
		return fmt.Errorf("%w: generation %d term %d, seen %d and %d", errStaleLeader, generation, term, l.generation, l.term)
	}
	// A new generation counts its indexes anew.
	if generation > l.generation {
		l.index = 0
	}
	index = max(index, l.index)
	if err := l.handler.Seen(generation, term, index); err != nil {
		return fmt.Errorf("keep generation %d term %d: %w", generation, term, err)
	}
	l.generation, l.term, l.index = generation, term, index
	return nil
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// jitter returns between half of d and d.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d/2+1)
}
