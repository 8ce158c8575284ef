package api

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/raftnode"
	"rcd/relay"
	"rcd/wire"
)

const (
	clientToken = "tok-client"
	workerToken = "tok-worker"
	adminToken  = "tok-admin"
	testTokens  = clientToken + ":client," + workerToken + ":worker," + adminToken + ":admin"
)

// cluster is a lease table that several nodes share, each with an edge of its
// own, and a fake host whose jobs end when the test says so. What
// raft would do, the test does: it names the leader.
type cluster struct {
	t       *testing.T
	machine *fsm.Machine
	nodes   map[string]*node

	mu      sync.Mutex // guards what follows, and Apply
	term    uint64
	index   uint64
	now     time.Time
	leader  string
	changed chan struct{}
	outputs map[uint64]*spool

	proposals atomic.Int64
}

// node is one controller, with two listeners in memory; the hooks change what its backend answers.
type node struct {
	id      string
	cluster *cluster
	api     *pipeListener // for clients
	forward *pipeListener // for other controllers
	peers   *PeerClient

	// propose, if set, is asked first; handled says that its answer counts.
	propose  atomic.Pointer[func(context.Context) (err error, handled bool)]
	after    atomic.Pointer[func() error] // after the command was applied
	read     atomic.Pointer[func() error]
	detached atomic.Bool
	panics   atomic.Bool             // whatever it is asked
	protocol atomic.Int64            // of the host's agent; 0: this release's, below: away
	beats    atomic.Pointer[uint64]  // the hold whose client was heard last
	seen     *atomic.Pointer[[]byte] // the command proposed last
	log      LogPage
	waiting  string // in no cluster yet: what for
	status   *wire.RaftStatus
	peer     *wire.RaftPeer
	halted   atomic.Pointer[string]
	heard    map[string]time.Duration // by stale reads
	heardAge time.Duration
	events   *EventLog
	behind   uint64        // entries that are committed and not applied here
	age      time.Duration // of stale reads; 0: 1,234 ms
	// tokenInURL is the switch of that name.
	tokenInURL atomic.Bool
}

func newCluster(t *testing.T, ids ...string) *cluster {
	t.Helper()
	c := &cluster{
		t:       t,
		machine: fsm.New(fsm.Options{PanicOnInvariant: true}),
		nodes:   map[string]*node{},
		now:     time.Date(2026, 3, 1, 12, 0, 0, 250e6, time.UTC),
		changed: make(chan struct{}),
		outputs: map[uint64]*spool{},
	}
	tokens, err := ParseTokens(testTokens)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serve := func(l net.Listener, h http.Handler) {
		serving.Add(1)
		go func() {
			defer serving.Done()
			if err := Serve(ctx, l, h, slog.New(slog.DiscardHandler)); err != nil {
				t.Error(err)
			}
		}()
	}
	for _, id := range ids {
		n := &node{id: id, cluster: c, api: newPipeListener(id), forward: newPipeListener(id), events: NewEventLog()}
		n.peers = NewPeerClient(func(ctx context.Context, to string) (net.Conn, error) {
			return c.nodes[to].forward.dial(ctx)
		})
		c.nodes[id] = n
		config := Config{NodeID: id, Instance: "instance-of-" + id, Tokens: tokens, Logger: slog.New(slog.DiscardHandler)}
		withURL := config
		withURL.EventsTokenInURL = true
		plain, inURL := observed(t, New(config, n)), observed(t, New(withURL, n))
		serve(n.api, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if n.tokenInURL.Load() {
				inURL.ServeHTTP(w, r)
				return
			}
			plain.ServeHTTP(w, r)
		}))
		serve(n.forward, NewInternal(config, n, n))
	}
	t.Cleanup(func() {
		cancel()
		for _, n := range c.nodes {
			n.peers.Close()
		}
		serving.Wait()
	})
	if len(ids) > 0 {
		c.lead(ids[0])
	}
	return c
}

// lead makes a node the leader of a new term, or nobody with "".
func (c *cluster) lead(id string) {
	c.mu.Lock()
	c.leader = id
	if id != "" {
		c.term++
	}
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
	if id != "" {
		c.must(&command.EpochBegin{Node: id, WallMS: c.now.UnixMilli()})
	}
}

// advance moves the cluster's clock.
func (c *cluster) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// apply puts one encoded command through the machine.
func (c *cluster) apply(cmd []byte) (command.Result, uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entry, err := command.EncodeEntry(c.term, c.now.UnixNano(), [][]byte{cmd})
	if err != nil {
		return command.Result{}, 0, err
	}
	c.index++
	results, events, err := c.machine.Apply(c.index, c.term, entry)
	if err != nil {
		return command.Result{}, 0, err
	}
	for _, n := range c.nodes {
		n.events.Applied(c.machine.View(), events)
	}
	return results[0], c.index, nil
}

// must applies a command of the cluster's own, which has to be accepted.
func (c *cluster) must(body any) command.Result {
	c.t.Helper()
	cmd, err := command.Encode(command.Request{}, body)
	if err != nil {
		c.t.Fatal(err)
	}
	result, _, err := c.apply(cmd)
	if err != nil || result.Code != command.OK {
		c.t.Fatalf("%T: %v %v %s", body, err, result.Code, result.Message)
	}
	return result
}

// register brings up the host of the transcripts: box, with gpu0 and gpu1.
func (c *cluster) register() {
	c.t.Helper()
	facts := []command.KV{{Key: "cpus", Value: "8"}, {Key: "disk_free_bytes", Value: "1000"}, {Key: "kernel", Value: "6.1"}, {Key: "mem_total_bytes", Value: "1024"}}
	c.must(&command.AgentRegister{
		Host: "box", MachineID: "machine", BootID: "boot", Instance: "agent-1",
		Devices: []command.DeviceSpec{
			{Name: "gpu0", MaxRuntimeS: 3600, Declared: []command.KV{{Key: "rack", Value: "r3"}, {Key: "vram", Value: "80G"}}, Detected: facts},
			{Name: "gpu1", Detected: facts},
		},
		Proof: command.Proof{SurvivorsChecked: true},
	})
}

func (c *cluster) job(number uint64) *model.Job {
	c.t.Helper()
	j := c.machine.View().Job(number)
	if j == nil {
		c.t.Fatalf("no job %d", number)
	}
	return j
}

func (c *cluster) ref(number uint64) command.JobRef {
	return command.JobRef{Job: number, Lease: c.job(number).Lease}
}

// start starts an assigned job on the host.
func (c *cluster) start(number uint64) {
	c.t.Helper()
	c.must(&command.JobStart{JobRef: c.ref(number), Host: "box", Instance: "agent-1"})
}

// finish ends a job that has printed what its spool holds.
func (c *cluster) finish(number uint64, end command.EndKind, code int32, reason string) {
	c.t.Helper()
	s := c.spool(number)
	data := s.all()
	c.must(&command.JobFinish{
		JobRef: c.ref(number), Host: "box", Instance: "agent-1", End: end, ExitCode: &code, Reason: reason,
		OutputLength: uint64(len(data)), OutputKnown: true,
	})
	s.end()
}

func (c *cluster) spool(number uint64) *spool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.outputs[number]
	if s == nil {
		s = &spool{news: make(chan struct{})}
		c.outputs[number] = s
	}
	return s
}

// spool is the output of one job on its host.
type spool struct {
	mu      sync.Mutex
	data    []byte
	lost    int64  // bytes from 0 on that are gone
	partial string // why the end is not complete
	ended   bool
	away    bool // the host does not answer
	news    chan struct{}
}

func (s *spool) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.news)
	s.news = make(chan struct{})
}

func (s *spool) print(text string) { s.change(func() { s.data = append(s.data, text...) }) }
func (s *spool) end()              { s.change(func() { s.ended = true }) }
func (s *spool) goAway()           { s.change(func() { s.away = true }) }

func (s *spool) all() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.data)
}

// spoolSource reads a spool as the leader would through the host's agent.
type spoolSource struct {
	*spool
	next   int64
	follow bool
}

func (s *spoolSource) Next(ctx context.Context) (relay.Record, error) {
	for {
		s.mu.Lock()
		rest, ended, away, news, lost := s.data[min(s.next, int64(len(s.data))):], s.ended, s.away, s.news, s.lost
		partial := s.partial
		s.mu.Unlock()
		switch {
		case away:
		case s.next < lost:
			gap := relay.Gap{From: s.next, To: lost, Cause: "over its bound"}
			s.next = lost
			return gap, nil
		case len(rest) > 0:
			d := relay.Data{Offset: s.next, Stream: wire.StreamStdout, Bytes: rest}
			s.next += int64(len(rest))
			return d, nil
		case ended:
			return relay.End{Length: s.next, StreamEnd: wire.StreamEnd{State: "succeeded", Complete: partial == "", Reason: partial}}, nil
		case !s.follow:
			return relay.End{Length: s.next, StreamEnd: wire.StreamEnd{State: "running", Reason: "the job is running"}}, nil
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// The backend of a node.

func (n *node) Leader() Leader {
	c := n.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	return Leader{ID: c.leader, Term: c.term, Self: c.leader == n.id, Changed: c.changed}
}

func (n *node) Halted() string {
	if why := n.halted.Load(); why != nil {
		return *why
	}
	return ""
}

func (n *node) mayPanic() {
	if n.panics.Load() {
		panic("a mistake of ours")
	}
}

func (n *node) Propose(ctx context.Context, cmd []byte) (command.Result, uint64, error) {
	n.mayPanic()
	n.cluster.proposals.Add(1)
	if n.seen != nil {
		n.seen.Store(&cmd)
	}
	if hook := n.propose.Load(); hook != nil {
		if err, handled := (*hook)(ctx); handled {
			return command.Result{}, 0, err
		}
	}
	if !n.Leader().Self {
		return command.Result{}, 0, raftnode.ErrNotLeader
	}
	result, index, err := n.cluster.apply(cmd)
	if hook := n.after.Load(); hook != nil && err == nil {
		if err := (*hook)(); err != nil {
			return command.Result{}, 0, err
		}
	}
	return result, index, err
}

func (n *node) Read(_ context.Context, o ReadOptions) (*fsm.View, ReadInfo, error) {
	n.mayPanic()
	if hook := n.read.Load(); hook != nil {
		if err := (*hook)(); err != nil {
			return nil, ReadInfo{}, err
		}
	}
	c := n.cluster
	leader := n.Leader().ID
	if leader == "" && !o.Stale {
		return nil, ReadInfo{}, raftnode.ErrNoLeader
	}
	c.mu.Lock()
	info := ReadInfo{Leader: leader, Now: c.now}
	c.mu.Unlock()
	if o.Stale {
		info.Age = cmp.Or(n.age, 1234*time.Millisecond)
	}
	if o.Heard {
		info.Heard = map[string]time.Duration{"box": 1500 * time.Millisecond}
	}
	if o.Heard && o.Stale {
		info.Heard, info.HeardAge = n.heard, n.heardAge
	}
	return c.machine.View(), info, nil
}

func (n *node) Events() *EventLog { return n.events }

func (n *node) Attached(string) bool { return !n.detached.Load() }

func (n *node) Output(_ context.Context, job *model.Job, offset int64, follow bool) (relay.Source, error) {
	if !n.Leader().Self {
		return nil, raftnode.ErrNotLeader
	}
	return &spoolSource{spool: n.cluster.spool(job.Number), next: offset, follow: follow}, nil
}

func (n *node) Forward(to string) http.RoundTripper { return n.peers.To(to) }

func (n *node) RaftStatus(context.Context) wire.RaftStatus {
	n.mayPanic()
	if n.status != nil {
		return *n.status
	}
	return wire.RaftStatus{Node: n.id, Waiting: n.waiting, State: "follower", Leader: n.Leader().ID, FSMIndex: n.cluster.machine.Index(), Commit: n.cluster.machine.Index() + n.behind, Counts: map[string]int{}}
}

func (n *node) RaftPeers(ctx context.Context) []wire.RaftPeer {
	n.mayPanic()
	if n.waiting != "" {
		return nil
	}
	var out []wire.RaftPeer
	for _, id := range []string{"c1", "c2", "c3"} {
		if n.cluster.nodes[id] == nil {
			continue
		}
		if p, err := n.peers.Peer(ctx, id); err == nil {
			p.Reachable = true
			out = append(out, p)
		}
	}
	return out
}

func (n *node) RaftLog(uint64, int) (LogPage, error) {
	n.mayPanic()
	return n.log, nil
}

func (n *node) ReadIndex(_ context.Context, heard bool) (ReadIndex, error) {
	l := n.Leader()
	if !l.Self {
		return ReadIndex{}, raftnode.ErrNotLeader
	}
	out := ReadIndex{Index: n.cluster.machine.Index(), Term: l.Term, NowMS: 5}
	if heard {
		out.HeardMS = map[string]int64{"box": 7}
	}
	return out, nil
}

func (n *node) Contacts(_ context.Context, report ContactReport) (ContactAnswer, error) {
	if !n.Leader().Self {
		return ContactAnswer{}, raftnode.ErrNotLeader
	}
	return ContactAnswer{Clocks: []PeerClock{{Node: report.Node, OffsetMS: report.WallMS, AgoMS: int64(len(report.Agents))}}}, nil
}

func (n *node) Peer() wire.RaftPeer {
	if n.peer != nil {
		return *n.peer
	}
	return wire.RaftPeer{ID: n.id, HTTP: n.api.name}
}

func (n *node) Webhooks() WebhookLedger { return WebhookLedger{} }

func (n *node) Copy(context.Context, CopyRequest) (CopySource, error) {
	return nil, fmt.Errorf("no copies here")
}

func (n *node) DigestAt(index uint64) DigestAt {
	return DigestAt{Digest: fmt.Sprintf("%032x", index), Applied: n.cluster.machine.Index()}
}

// do sends a request to the node's API.
func (n *node) do(method, path, token, body string, headers ...string) (*http.Response, string) {
	n.cluster.t.Helper()
	resp, err := n.try(context.Background(), method, path, token, body, headers...)
	if err != nil {
		n.cluster.t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		n.cluster.t.Fatal(err)
	}
	return resp, string(raw)
}
