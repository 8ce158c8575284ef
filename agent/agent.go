package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"rcd/agent/probe"
	"rcd/agent/proc"
	"rcd/internal/ident"
	"rcd/internal/mux"
	"rcd/session"
)

// Deps are what an agent takes from its process. The zero value is good.
type Deps struct {
	Logger  *slog.Logger // nil: discarded
	Version string       // of the build, for people
	// Exec is the rcd executable, run as `Exec shim …` for each job; "" is this
	// process's own.
	Exec string
	// Dial connects to a controller, without the handshake; nil is TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Ready, if set, is called once the agent has adopted its jobs.
	Ready func()
	// Reload brings other configurations while the agent runs; nil: none come.
	Reload <-chan Reload
	// Status, if set, is told how the agent does: when its jobs change, a few
	// times a second at most, and each StatusEvery (0: 5 s). It must not block.
	Status      func(Status)
	StatusEvery time.Duration
	// Sources detect facts about the devices, in addition to those of the host.
	// Where two say the same key, the later one counts.
	Sources []Source
	// GPUs is what NVIDIA GPUs are looked at with; nil: none are looked for, and
	// devices have the number in their name.
	GPUs probe.Library

	reached func(point)  // a test's
	shaped  func(*agent) // a test's: called before anything is adopted
}

// agent is one process's work. Jobs are in jobs.go.
type agent struct {
	config    Config                 // as of the start
	live      atomic.Pointer[Config] // see settings
	deps      Deps
	log       *slog.Logger
	state     *state
	instance  string
	bootID    string
	machineID string
	proofs    proofCache
	janitor   *janitor
	keeper    *keeper
	// probesDone waits for the end of probes; nil without any.
	probesDone func()
	gpus       *gpus
	checks     []check // in the order in which they are made
	health     *gpuHealth
	drains     *drainBook
	starts     startTally
	scripts    *scripts
	custodies  map[string]*custody // by device; those that have hooks

	leaderHeard atomic.Int64 // wall clock, nanoseconds; 0: never

	ctx  context.Context // ends when the agent stops
	wait sync.WaitGroup

	mu         sync.Mutex // guards what follows
	jobs       map[key]*job
	seats      map[uint64]*seats    // who is attached, by job number
	complained map[string]time.Time // last, by controller's address
	wake       chan struct{}        // closed and replaced when jobs change
	changed    chan struct{}        // holds one; for the link
}

// Run serves the host until ctx ends, and returns after every goroutine of the
// agent; its jobs go on. It fails at once when another agent serves the data
// directory or the host (ErrLocked, with the pid), without a token
// (ErrNoToken), or when the data directory cannot be used.
func Run(ctx context.Context, config Config, deps Deps) error {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Token == "" {
		config.Token = tokenOfEnvironment()
	}
	if config.Token == "" {
		return fmt.Errorf("%w: set token in the configuration, or RC_TOKEN, to one of the controllers' worker tokens", ErrNoToken)
	}
	if deps.Exec == "" {
		self, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the rcd executable: %w", err)
		}
		deps.Exec = self
	}
	var err error
	if config.DataDir, err = filepath.Abs(config.DataDir); err != nil { // a shim runs in /
		return fmt.Errorf("find data directory: %w", err)
	}
	for _, n := range config.Notices {
		deps.Logger.Warn("configuration", "notice", n)
	}
	if err := os.MkdirAll(filepath.Join(config.DataDir, jobsDir), 0o700); err != nil {
		return fmt.Errorf("make data directory: %w", err)
	}
	unlockDir, err := lockDir(config.DataDir, deps.Logger)
	if err != nil {
		return err
	}
	defer unlockDir()
	unlockHost, err := lockHost(config.Host, config.Token)
	if err != nil {
		return err
	}
	defer unlockHost()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	a, err := newAgent(ctx, config, deps)
	if err != nil {
		return err
	}
	defer a.close(cancel)
	a.endScripts()
	if err := a.adopt(); err != nil {
		return err
	}
	if err := a.resumeDrain(); err != nil {
		return err
	}
	a.openControl()
	a.releaseIdle()
	a.wait.Go(a.janitor.run)
	a.wait.Go(a.reloads)
	a.wait.Go(func() { proc.ReapOrphans(a.ctx) })
	a.observe()
	if deps.Status != nil {
		a.deps.StatusEvery = cmp.Or(deps.StatusEvery, defaultPulse)
		a.wait.Go(a.pulse)
	}
	if deps.Ready != nil {
		deps.Ready()
	}
	a.log.Info("agent serves", "host", config.Host, "devices", len(a.config.Devices), "jobs", len(a.Jobs()), "instance", a.instance)
	a.link().Run(ctx)
	return nil
}

func newAgent(ctx context.Context, config Config, deps Deps) (*agent, error) {
	a := &agent{
		config: config, deps: deps, log: deps.Logger, ctx: ctx, instance: ident.New(),
		jobs: map[key]*job{}, complained: map[string]time.Time{}, wake: make(chan struct{}), changed: make(chan struct{}, 1),
	}
	a.live.Store(&config)
	// Losing the agent costs supervision, losing the job costs the job. Without
	// the capability the score stays as it is.
	if err := proc.SetOOMScore(0, agentOOMScore); err != nil {
		a.log.Debug("OOM score not lowered", "error", err)
	}
	var err error
	if a.bootID, err = proc.BootID(); err != nil {
		return nil, err
	}
	if a.machineID, err = machineID(config.DataDir, ident.New); err != nil {
		return nil, err
	}
	var fenceLost bool
	var problems []error
	if a.state, fenceLost, problems, err = openState(config.DataDir); err != nil {
		return nil, err
	}
	for _, p := range problems {
		a.log.Error("a file of the data directory cannot be read and was set aside", "error", p)
	}
	sources := []Source{hostFacts}
	a.gpus = newGPUs(a)
	if a.config.Devices, err = a.gpus.declare(ctx); err != nil {
		return nil, err
	}
	if deps.GPUs != nil {
		sources = append(sources, a.gpus.source())
	}
	a.health = newGPUHealth(a)
	sources = slices.Concat(sources, a.health.sources(), deps.Sources)
	if a.settings().Probes.Dir != "" {
		source, done := a.probesSource()
		sources, a.probesDone = append(sources, source), done
	}
	a.keeper = newKeeper(a.config.Devices, sources, a.log, a.factsChanged)
	if a.drains, err = openDrain(config.DataDir, config.Host); a.drains == nil {
		return nil, err
	} else if err != nil {
		a.log.Error("the drain of this host cannot be read and was set aside", "error", err)
	}
	if fenceLost {
		if err := a.rebuildFence(); err != nil {
			return nil, err
		}
	}
	a.scripts = newScripts(config.Host, config.DataDir, a.bootID, a.gpus.cuda, a.log)
	a.custodies = newCustodies(config.Devices)
	a.checks = append(a.checks, (&verifier{agent: a}).check())
	a.checks = append(a.checks, a.health.checks()...) // last: a script may leave something on a GPU
	a.janitor = newJanitor(a)
	if deps.shaped != nil {
		deps.shaped(a)
	}
	return a, nil
}

// observe begins to look at the host, and returns once the first facts are
// there, or will be late.
func (a *agent) observe() {
	a.wait.Go(func() {
		a.keeper.run(a.ctx)
		if a.probesDone != nil {
			a.probesDone()
		}
	})
	a.wait.Go(func() { a.health.run(a.ctx) })
	if a.config.SheetDir != "" {
		read := func(context.Context) (sheets, error) {
			return readSheets(a.settings().SheetDir, a.keeper.devices), nil
		}
		a.wait.Go(func() {
			repeat(a.ctx, sheetsEvery, sheetsTimeout, read, func(s sheets, err error) {
				if err != nil {
					a.log.Warn("usage sheets not read", "path", a.settings().SheetDir, "error", err)
					return
				}
				a.keeper.hearSheets(s)
			})
		})
	}
	a.keeper.await(a.ctx)
}

// factsChanged tells the link. It never blocks.
func (a *agent) factsChanged() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// agentOOMScore is above the shims': the agent can be started again.
const agentOOMScore = -900

// close ends what Run has begun, except the jobs.
func (a *agent) close(cancel context.CancelFunc) {
	cancel()
	a.wait.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, j := range a.jobs {
		if j.handle != nil {
			j.handle.Close()
		}
	}
}

// link returns the session with the controllers.
func (a *agent) link() *session.Link {
	dialer := &mux.Dialer{
		Self: func() mux.Identity {
			facts := a.state.facts()
			return mux.Identity{ClusterID: facts.ClusterID, Generation: facts.Generation, NodeID: a.config.Host, Incarnation: a.instance}
		},
		Key:         mux.Key{Name: "worker", Secret: []byte(a.config.Token)},
		DialContext: a.deps.Dial,
	}
	facts := a.state.facts()
	return session.NewLink(session.LinkConfig{
		Host: a.config.Host, Instance: a.instance, Addresses: a.config.Controllers, Controllers: facts.Controllers,
		Generation: facts.Generation, Term: facts.Term, Index: facts.Index, Logger: a.log,
		Dial: func(ctx context.Context, addr string, bulk bool) (net.Conn, error) {
			kind := mux.Agent
			if bulk {
				kind = mux.Bytes
			}
			conn, err := dialer.Dial(ctx, addr, kind)
			if err != nil {
				a.complain(addr, err)
				return nil, err
			}
			return conn, nil
		},
	}, a)
}

// complainEvery is how often the same controller's refusal is logged: the link
// tries several times a second.
const complainEvery = time.Minute

// complain logs a refusal that only a person can mend.
func (a *agent) complain(addr string, err error) {
	if !errors.Is(err, mux.ErrUnauthorized) && !errors.Is(err, mux.ErrIdentityMismatch) {
		return
	}
	a.mu.Lock()
	quiet := time.Since(a.complained[addr]) < complainEvery
	if !quiet {
		a.complained[addr] = time.Now()
	}
	a.mu.Unlock()
	if !quiet {
		a.log.Error("a controller does not take this agent's connection", "controller", addr, "error", err)
	}
}
