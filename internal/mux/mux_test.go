package mux

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestBytesPassUntouchedAfterTheHandshake(t *testing.T) {
	l, d := rig(t, nil)
	raft := l.Channel(Raft)
	go func() {
		c, err := d.Dial(context.Background(), "c1", Raft)
		if err != nil {
			t.Error(err)
			return
		}
		if c.Peer() != c1 || c.KeyName() != "cluster" {
			t.Errorf("dialer sees %+v by %q", c.Peer(), c.KeyName())
		}
		io.WriteString(c, "first bytes")
		c.Close()
	}()
	accepted, err := raft.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := accepted.(*Conn)
	if c.Peer() != c2 || c.Type() != Raft || c.KeyName() != "cluster" {
		t.Errorf("listener sees %+v, %v by %q", c.Peer(), c.Type(), c.KeyName())
	}
	if got, _ := io.ReadAll(c); string(got) != "first bytes" {
		t.Errorf("read %q", got)
	}
}

func TestWrongPeersAreRefusedWithAReason(t *testing.T) {
	other := Identity{"cl-2", 1, "c2", "inc-2"}
	agent := func(clusterID string, generation uint64) func() Identity {
		return self(Identity{clusterID, generation, "box", "inst-1"})
	}
	for _, test := range []struct {
		name   string
		kind   Type
		change func(*Config, *Dialer)
		want   error // nil: accepted
		says   string
	}{
		{"cluster key opens forward", Forward, nil, nil, ""},
		{"wrong cluster key", Raft, func(_ *Config, d *Dialer) { d.Key.Secret = []byte("guess") }, ErrUnauthorized, "RCD_CLUSTER_KEY"},
		{"worker token for raft", Raft, func(_ *Config, d *Dialer) { d.Key = workerKeys[0] }, ErrUnauthorized, "RCD_CLUSTER_KEY"},
		{"cluster key for an agent", Agent, func(_ *Config, d *Dialer) { d.Self = agent("", 0) }, ErrUnauthorized, "worker token"},
		{"no worker tokens at all", Agent, func(c *Config, d *Dialer) { c.WorkerKeys = nil; d.Key = workerKeys[0] }, ErrUnauthorized, "worker token"},
		{"empty worker token", Agent, func(c *Config, d *Dialer) {
			c.WorkerKeys = func() []Key { return []Key{{"empty", nil}} }
			d.Key = workerKeys[0]
		}, ErrUnauthorized, ""},
		{"second worker token", Bytes, func(_ *Config, d *Dialer) { d.Key = workerKeys[1]; d.Self = agent("cl-1", 1) }, nil, ""},
		{"another cluster", Raft, func(_ *Config, d *Dialer) { d.Self = self(other) }, ErrIdentityMismatch, "cl-2"},
		{"another cluster, forward", Forward, func(_ *Config, d *Dialer) { d.Self = self(other) }, ErrIdentityMismatch, "cl-2"},
		{"another generation", Raft, func(_ *Config, d *Dialer) { d.Self = self(Identity{"cl-1", 2, "c2", "inc-2"}) }, ErrIdentityMismatch, "generation 2"},
		{"no cluster yet", Raft, func(c *Config, d *Dialer) { c.Self, d.Self = self(Identity{}), self(Identity{}) }, ErrIdentityMismatch, "no cluster"},
		{"probe before a cluster", Probe, func(_ *Config, d *Dialer) { d.Self = self(Identity{NodeID: "c3"}) }, nil, ""},
		{"probe from another cluster", Probe, func(_ *Config, d *Dialer) { d.Self = self(other) }, nil, ""},
		{"probe without the key", Probe, func(_ *Config, d *Dialer) { d.Key.Secret = []byte("guess") }, ErrUnauthorized, ""},
		{"incarnation", Raft, func(c *Config, _ *Dialer) {
			c.Check = func(Type, Identity) error { return errors.New("c2 was wiped: remove it first") }
		}, ErrIdentityMismatch, "c2 was wiped: remove it first"},
		{"dialer refuses the listener", Raft, func(_ *Config, d *Dialer) {
			d.Check = func(_ Type, peer Identity) error { return errors.New("not the " + peer.NodeID + " we know") }
		}, ErrIdentityMismatch, "not the c1 we know"},
		{"new agent", Agent, func(_ *Config, d *Dialer) { d.Key = workerKeys[0]; d.Self = agent("", 0) }, nil, ""},
		{"agent of an earlier generation", Agent, func(c *Config, d *Dialer) {
			c.Self = self(Identity{"cl-1", 3, "c1", "i"})
			d.Key, d.Self = workerKeys[0], agent("cl-1", 1)
		}, nil, ""},
		{"agent of a later generation", Agent, func(_ *Config, d *Dialer) { d.Key = workerKeys[0]; d.Self = agent("cl-1", 2) }, ErrIdentityMismatch, "generation 2"},
		{"agent of another cluster", Agent, func(_ *Config, d *Dialer) { d.Key = workerKeys[0]; d.Self = agent("cl-9", 1) }, ErrIdentityMismatch, "cl-9"},
		{"a type nobody serves", Type('x'), nil, ErrNotServed, "no stream type"},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, d := rig(t, test.change)
			for _, kind := range types {
				l.Channel(kind)
			}
			c, err := d.Dial(context.Background(), "c1", test.kind)
			if !errors.Is(err, test.want) {
				t.Fatalf("got %v, want %v", err, test.want)
			}
			if err == nil {
				c.Close()
				return
			}
			if !strings.Contains(err.Error(), test.says) {
				t.Errorf("%q does not say %q", err, test.says)
			}
		})
	}
}

// TestListenerRefusesADialerThatChecksNothing: the check at the dialer's side
// is a courtesy.
func TestListenerRefusesADialerThatChecksNothing(t *testing.T) {
	l, d := rig(t, nil)
	l.Channel(Raft)
	raw, err := d.Connect(context.Background(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	other := Identity{"cl-2", 1, "c2", "inc-2"}
	_, err = dialerHandshake(raw, Raft, other, clusterKey.Secret, func(Identity) error { return nil })
	if !errors.Is(err, ErrIdentityMismatch) || !strings.Contains(err.Error(), "cl-2") {
		t.Errorf("got %v", err)
	}
}

func TestNothingStartsWithoutAKey(t *testing.T) {
	p := newPipes()
	if _, err := NewListener(p, Config{Self: self(c1)}); !errors.Is(err, ErrNoKey) {
		t.Errorf("listener: %v", err)
	}
	d := Dialer{Self: self(c2), DialContext: p.dial}
	if _, err := d.Dial(context.Background(), "c1", Raft); !errors.Is(err, ErrNoKey) {
		t.Errorf("dialer: %v", err)
	}
}

func TestListenerThatDoesNotKnowTheKeyIsFoundOut(t *testing.T) {
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		if _, err := readFrame(far); err != nil {
			t.Error(err)
			return
		}
		writeFrame(far, challenge{nonce: newNonce(), identity: c1}.encode())
		readFrame(far)
		ok := &refusal{statusOK, ""}
		writeFrame(far, encodeVerdict(ok, sum([]byte("guess"), "listener", ok.encode())))
	}()
	d := Dialer{Self: self(c2), Key: clusterKey, DialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }}
	if _, err := d.Dial(context.Background(), "c1", Raft); !errors.Is(err, ErrUnauthorized) {
		t.Errorf("got %v", err)
	}
}

func TestSilentPeersNeitherBlockOthersNorStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, d := rig(t, nil)
		ch := l.Channel(Raft)
		var silent []net.Conn
		for range maxPending - 1 {
			c, err := d.Connect(context.Background(), "c1")
			if err != nil {
				t.Fatal(err)
			}
			silent = append(silent, c)
		}
		start := time.Now()
		good, err := d.Dial(context.Background(), "c1", Raft)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("a good peer waited %v behind silent ones", took)
		}
		accepted, err := ch.Accept()
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the good handshake's place is free again
		last, _ := d.Connect(context.Background(), "c1")
		excess, err := d.Connect(context.Background(), "c1")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := silent[0].Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the longest silent peer got %v when the bound was passed", err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("it made room after %v", took)
		}
		another, err := d.Dial(context.Background(), "c1", Raft)
		if err != nil {
			t.Errorf("a good peer at the bound: %v", err)
		} else {
			defer another.Close()
			accepted, err := ch.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer accepted.Close()
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("a good peer at the bound waited %v", took)
		}
		for _, c := range append(silent[2:], last, excess) {
			if _, err := c.Read(make([]byte, 1)); err != io.EOF {
				t.Fatalf("a silent peer got %v", err)
			}
		}
		if took := time.Since(start); took != handshakeTimeout {
			t.Errorf("silent peers stayed %v", took)
		}
		good.Close()
		accepted.Close()
	})
}

func TestDialerGivesUpOnASilentListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, far := net.Pipe()
		defer far.Close()
		d := Dialer{Self: self(c2), Key: clusterKey, DialContext: func(context.Context, string, string) (net.Conn, error) {
			return far, nil
		}}
		start := time.Now()
		if _, err := d.Dial(context.Background(), "c1", Raft); err == nil || time.Since(start) != handshakeTimeout {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		_, far := net.Pipe()
		d := Dialer{Self: self(c2), Key: clusterKey, DialContext: func(context.Context, string, string) (net.Conn, error) {
			return far, nil
		}}
		ctx, cancel := context.WithCancel(context.Background())
		go func() { time.Sleep(time.Second); cancel() }()
		start := time.Now()
		if _, err := d.Dial(ctx, "c1", Raft); !errors.Is(err, context.Canceled) || time.Since(start) != time.Second {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}

func TestChannelNobodyAcceptsFromHoldsUpNoOther(t *testing.T) {
	l, d := rig(t, nil)
	l.Channel(Forward)
	raft := l.Channel(Raft)
	for i := range backlog {
		if _, err := d.Dial(context.Background(), "c1", Forward); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
	}
	if _, err := d.Dial(context.Background(), "c1", Forward); !errors.Is(err, ErrBusy) {
		t.Errorf("past the backlog: %v", err)
	}
	if _, err := d.Dial(context.Background(), "c1", Raft); err != nil {
		t.Error(err)
	}
	if _, err := raft.Accept(); err != nil {
		t.Error(err)
	}
	if _, err := l.Channel(Forward).Accept(); err != nil {
		t.Error(err)
	}
	if _, err := d.Dial(context.Background(), "c1", Forward); err != nil {
		t.Errorf("after one was accepted: %v", err)
	}
}

func TestClosedChannelRefusesUntilItIsAskedForAgain(t *testing.T) {
	l, d := rig(t, nil)
	first := l.Channel(Raft)
	waiting, err := d.Dial(context.Background(), "c1", Raft)
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	if _, err := waiting.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a connection that waited in it got %v", err)
	}
	if _, err := first.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
	if _, err := d.Dial(context.Background(), "c1", Raft); !errors.Is(err, ErrNotServed) {
		t.Errorf("dial: %v", err)
	}
	second := l.Channel(Raft)
	if _, err := d.Dial(context.Background(), "c1", Raft); err != nil {
		t.Errorf("dial after reopening: %v", err)
	}
	if _, err := second.Accept(); err != nil {
		t.Error(err)
	}
}

func TestCloseEndsHandshakesAndAccepts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, d := rig(t, nil)
		ch := l.Channel(Raft)
		silent, _ := d.Connect(context.Background(), "c1")
		ended := make(chan error)
		go func() { _, err := ch.Accept(); ended <- err }()
		synctest.Wait()
		start := time.Now()
		l.Close()
		if time.Since(start) != 0 {
			t.Errorf("close took %v", time.Since(start))
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("accept: %v", err)
		}
		if _, err := silent.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("silent peer: %v", err)
		}
		if _, err := l.Channel(Probe).Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("channel asked for after close: %v", err)
		}
	})
}

func TestTCPHalfCloseAndRefusedConnect(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := NewListener(inner, Config{ClusterKey: clusterKey, Self: self(c1)})
	if err != nil {
		t.Fatal(err)
	}
	ch := l.Channel(Forward)
	d := Dialer{Self: self(c2), Key: clusterKey}
	c, err := d.Dial(context.Background(), inner.Addr().String(), Forward)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	far, err := ch.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	io.WriteString(c, "all")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(far); string(got) != "all" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
	io.WriteString(far, "answer")
	far.Close()
	if got, _ := io.ReadAll(c); string(got) != "answer" {
		t.Errorf("answer %q", got)
	}
	l.Close()
	if _, err := d.Dial(context.Background(), inner.Addr().String(), Forward); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial of a closed port: %v", err)
	}
}
