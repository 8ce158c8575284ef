package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"rcd/wire"
)

const (
	// admitTimeout bounds Backend.Admit: a verdict in flight and two proposals.
	admitTimeout = 10 * time.Second
	// lingerTime is how long a session that has said its last word waits for
	// the peer to close first. Closing at once could reset the connection and
	// lose that word.
	lingerTime = time.Second
	// resendAfter is when an order is written again while the heartbeats still
	// do not show its effect.
	resendAfter = 5 * time.Second
	// maxWorking bounds the proposals that one session waits for. The agent
	// repeats what was not taken on.
	maxWorking = 64
)

// errEpochEnded ends the sessions of a leader that leads no more.
var errEpochEnded = errors.New("this controller no longer leads")

// controlSession is one agent's control stream on a controller.
type controlSession struct {
	hub    *Hub
	serial uint64
	hello  wire.Hello
	out    *messages
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelCauseFunc
	wait   sync.WaitGroup
	nudge  chan struct{} // holds one

	mu      sync.Mutex // guards what follows
	leading bool
	role    Role
	named   map[jobKey]wire.ReportedJob
	sent    map[sentKey]time.Time
	working map[sentKey]struct{}
	seq     uint64
	proven  time.Time // when proof was last asked for
}

// sentKey names one thing that a session does about a job.
type sentKey struct {
	kind ActionKind
	jobKey
	limit  int64  // of an extend: another one is another order
	device string // of a fault
}

// ServeControl serves one accepted control connection until it ends, and
// closes it. peerHost is the host that the connection was authenticated for;
// empty means that any may speak. It returns why the session ended, and only
// after all of its goroutines.
func (h *Hub) ServeControl(ctx context.Context, conn net.Conn, peerHost string) error {
	defer conn.Close()
	serial, ok := h.begin()
	if !ok {
		return fmt.Errorf("control session of %q: more than %d sessions", peerHost, maxSessions)
	}
	defer h.end()
	t, err := newTransport(conn, controlProfile, false, h.log)
	if err != nil {
		return err
	}
	defer t.close()
	out, hello, err := readHello(ctx, t)
	if err != nil {
		return fmt.Errorf("control session of %q: %w", peerHost, err)
	}
	s := &controlSession{
		hub: h, serial: serial, hello: hello, out: out,
		log:     h.log.With("host", hello.Host, "instance", hello.Instance),
		nudge:   make(chan struct{}, 1),
		sent:    map[sentKey]time.Time{},
		working: map[sentKey]struct{}{},
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	defer func() {
		s.cancel(context.Canceled)
		t.close()
		s.wait.Wait()
	}()
	s.name(hello.Jobs)
	s.wait.Add(1)
	go s.read()
	switch {
	case !hostAllowed(peerHost, hello.Host):
		return s.refuse(&Refusal{RefusedHost, fmt.Sprintf("the connection was opened for host %q, the hello names %q; give both the same host", peerHost, hello.Host)})
	case hello.Protocol < wire.MinAgentProtocol || hello.Protocol > wire.AgentProtocol:
		return s.refuse(&Refusal{RefusedProtocol, fmt.Sprintf("the agent speaks protocol %d, this controller %d to %d; install the same version on both", hello.Protocol, wire.MinAgentProtocol, wire.AgentProtocol)})
	}
	h.heard(s, nil)
	return s.serve()
}

func readHello(ctx context.Context, t *transport) (*messages, wire.Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	conn, err := t.accept(ctx)
	if err != nil {
		return nil, wire.Hello{}, fmt.Errorf("accept control stream: %w", err)
	}
	out := &messages{conn: conn}
	msg, err := out.receive(helloTimeout)
	if err != nil {
		return nil, wire.Hello{}, fmt.Errorf("read hello: %w", err)
	}
	if msg.Hello == nil {
		return nil, wire.Hello{}, fmt.Errorf("read hello: got a %s", describe(msg))
	}
	return out, *msg.Hello, nil
}

// serve redirects while another node leads and takes the agent in while this
// one does.
func (s *controlSession) serve() error {
	var said wire.Redirect
	for first := true; ; first = false {
		role, changed := s.hub.backend.Role()
		if role.Leading && first {
			return s.lead(role)
		}
		// An agent that waited here comes again: its hello is old by now.
		if now := s.redirection(role); first || now.Leader != said.Leader || now.Addr != said.Addr {
			if err := s.out.send(wire.AgentMessage{Redirect: &now}); err != nil {
				return err
			}
			said = now
		}
		if role.Leading {
			return s.linger(nil)
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}

// redirection returns who leads as role has it. A leader that has not begun its
// epoch is nobody yet.
func (s *controlSession) redirection(role Role) wire.Redirect {
	r := wire.Redirect{Term: role.Term, Controllers: s.hub.backend.Controllers()}
	if role.Leader != s.hub.self || role.Leading && role.Epoch.Err() == nil {
		r.Leader, r.Addr = role.Leader, role.Addr
	}
	return r
}

// lead admits the agent and keeps it until the epoch or the session ends.
func (s *controlSession) lead(role Role) error {
	stop := context.AfterFunc(role.Epoch, func() { s.wake() })
	defer stop()
	ctx, cancel := context.WithTimeout(s.ctx, admitTimeout)
	defer cancel()
	stopAdmit := context.AfterFunc(role.Epoch, cancel)
	admission, err := s.hub.backend.Admit(ctx, s.hello)
	stopAdmit()
	var refusal *Refusal
	switch {
	case role.Epoch.Err() != nil:
		return s.giveUp(false)
	case errors.As(err, &refusal):
		return s.refuse(refusal)
	case err != nil:
		return fmt.Errorf("admit: %w", err)
	}
	s.mu.Lock()
	s.leading, s.role = true, role
	s.mu.Unlock()
	if !s.hub.attach(s) {
		return errReplaced
	}
	defer s.hub.detach(s)
	welcome := &wire.Welcome{
		Leader: s.hub.self, ClusterID: admission.ClusterID, Generation: role.Generation, Term: role.Term,
		Index: admission.Index, Controllers: s.hub.backend.Controllers(),
	}
	if s.hello.Protocol >= 2 {
		welcome.Facts = admission.Facts
	}
	if err := s.out.send(wire.AgentMessage{Welcome: welcome}); err != nil {
		return err
	}
	s.log.Info("agent attached", "term", role.Term, "jobs", len(s.hello.Jobs))
	for {
		if role.Epoch.Err() != nil {
			return s.giveUp(true)
		}
		if err := s.reconcile(role); err != nil {
			return err
		}
		select {
		case <-s.nudge:
		case <-s.ctx.Done():
			s.log.Info("agent detached", "cause", context.Cause(s.ctx))
			return context.Cause(s.ctx)
		}
	}
}

// giveUp tells the agent who leads now, as far as that is known, and ends.
func (s *controlSession) giveUp(attached bool) error {
	if attached {
		s.hub.detach(s)
	}
	s.mu.Lock()
	s.leading = false
	s.mu.Unlock()
	role, _ := s.hub.backend.Role()
	now := s.redirection(role)
	if s.out.send(wire.AgentMessage{Redirect: &now}) != nil {
		return errEpochEnded
	}
	return s.linger(errEpochEnded)
}

func (s *controlSession) refuse(r *Refusal) error {
	s.log.Warn("agent refused", "code", r.Code, "message", r.Message)
	if s.out.send(wire.AgentMessage{Refused: &wire.Refused{Code: r.Code, Message: r.Message}}) != nil {
		return r
	}
	return s.linger(r)
}

func (s *controlSession) linger(why error) error {
	timer := time.NewTimer(lingerTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.ctx.Done():
	}
	return why
}

func (s *controlSession) wake() {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// name replaces what the agent is known to have.
func (s *controlSession) name(jobs []wire.ReportedJob) {
	named := make(map[jobKey]wire.ReportedJob, len(jobs))
	for _, j := range jobs {
		named[jobKey{j.Job, j.Lease}] = j
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.named = named
}

// nameOne adds what a message between two heartbeats says about one job.
func (s *controlSession) nameOne(j wire.ReportedJob) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := jobKey{j.Job, j.Lease}
	if j.MaxRuntimeS == 0 {
		j.MaxRuntimeS = s.named[k].MaxRuntimeS // not every message says it
	}
	s.named[k] = j
}

func (s *controlSession) unname(k jobKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.named, k)
}

// read takes messages in until the stream ends. It never waits for a proposal.
func (s *controlSession) read() {
	defer s.wait.Done()
	for {
		msg, err := s.out.receive(readDeadline)
		if err == nil {
			err = s.take(msg)
		}
		if err != nil {
			s.cancel(fmt.Errorf("control stream: %w", err))
			return
		}
	}
}

func (s *controlSession) take(msg wire.AgentMessage) error {
	switch {
	case msg.Heartbeat != nil:
		s.name(msg.Heartbeat.Jobs)
		s.hub.heard(s, msg.Heartbeat)
		s.wake()
		prove := s.wantsProof() // before the index, which the proof comes back with
		return s.out.send(wire.AgentMessage{HeartbeatAck: &wire.HeartbeatAck{
			Seq: msg.Heartbeat.Seq, Index: s.hub.backend.Index(), Controllers: s.hub.backend.Controllers(), Prove: prove}})
	case msg.Hello != nil:
		s.proof(*msg.Hello)
	case msg.OrderAck != nil:
		s.orderAcked(msg.OrderAck)
	case msg.Started != nil:
		s.nameOne(wire.ReportedJob{Job: msg.Started.Job, Lease: msg.Started.Lease, Phase: wire.PhaseRunning})
		s.started(jobKey{msg.Started.Job, msg.Started.Lease})
	case msg.Outcome != nil:
		s.nameOne(wire.ReportedJob{Job: msg.Outcome.Job, Lease: msg.Outcome.Lease, Phase: wire.PhaseEnded})
		s.finish(*msg.Outcome)
	case msg.Facts != nil:
		s.facts(*msg.Facts)
	case msg.Fault != nil:
		s.fault(*msg.Fault)
	default:
		return fmt.Errorf("a %s is not for a controller", describe(msg))
	}
	return nil
}

// snapshot returns what the agent is known to have, in no order.
func (s *controlSession) snapshot() []wire.ReportedJob {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.named))
}
