package rig

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"

	"rcd/controller"
	"rcd/controller/copies"
	"rcd/raftnode"
)

// Secrets of every rig.
const (
	ClusterKey  = "rig-cluster-key-of-good-length"
	AdminToken  = "rig-admin"
	WorkerToken = "rig-worker"
)

// Network is where controllers listen and dial; nil functions of a Config mean
// loopback.
type Network interface {
	// Listen opens the address that a name stands for.
	Listen(name string) (net.Listener, error)
	// Dial connects from one name to an address.
	Dial(ctx context.Context, from, address string) (net.Conn, error)
}

// Node is one controller of a rig and how to open it again.
type Node struct {
	ID         string
	Addr       string // of --listen
	HTTP       string
	Controller *controller.Controller

	config controller.Config
	deps   func() (controller.Deps, error)
	change func(id string, config *controller.Config, deps *controller.Deps)
	cancel context.CancelFunc
	done   chan error
}

// Config shapes a cluster.
type Config struct {
	Controllers int
	Dir         string
	Network     Network
	Logger      *slog.Logger
	// Change, unless nil, may change what a controller is started with, each
	// time it is.
	Change func(id string, config *controller.Config, deps *controller.Deps)
}

// Open starts the controllers. The caller stops each.
func Open(config Config) ([]*Node, error) {
	var nodes []*Node
	var join []raftnode.Peer
	for i := range config.Controllers {
		id := fmt.Sprintf("c%d", i+1)
		n := &Node{ID: id, change: config.Change}
		n.deps = func() (controller.Deps, error) {
			stream, err := config.Network.Listen(id)
			if err != nil {
				return controller.Deps{}, err
			}
			web, err := config.Network.Listen(id + "-http")
			if err != nil {
				return controller.Deps{}, err
			}
			n.Addr, n.HTTP = stream.Addr().String(), web.Addr().String()
			return controller.Deps{
				Logger: config.Logger, Listener: stream, HTTPListener: web,
				DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
					return config.Network.Dial(ctx, id, address)
				},
			}, nil
		}
		nodes = append(nodes, n)
	}
	// The join list needs every address before the first node starts.
	first := make([]controller.Deps, len(nodes))
	for i, n := range nodes {
		deps, err := n.deps()
		if err != nil {
			return nil, err
		}
		first[i] = deps
		join = append(join, raftnode.Peer{ID: n.ID, Addr: n.Addr})
	}
	for i, n := range nodes {
		n.config = controller.Config{
			NodeID: n.ID, DataDir: filepath.Join(config.Dir, n.ID), Listen: n.Addr, HTTP: n.HTTP,
			BootstrapExpect: config.Controllers, Join: join, ClusterKey: ClusterKey,
			Tokens:       AdminToken + ":admin," + WorkerToken + ":worker",
			OutputCopies: copies.Limit{Bytes: 1 << 30},
		}
		if err := n.start(first[i]); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// Start opens a stopped controller again on its data.
func (n *Node) Start() error {
	deps, err := n.deps()
	if err != nil {
		return err
	}
	return n.start(deps)
}

func (n *Node) start(deps controller.Deps) error {
	config := n.config
	if n.change != nil {
		n.change(n.ID, &config, &deps)
	}
	c, err := controller.New(config, deps)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	n.Controller, n.cancel, n.done = c, cancel, make(chan error, 1)
	go func() { n.done <- c.Run(ctx) }()
	return nil
}

// Stop closes the controller as SIGTERM would, and waits.
func (n *Node) Stop() error {
	n.cancel()
	return <-n.done
}

// Leader returns the node that leads, or nil.
func Leader(nodes []*Node) *Node {
	for _, n := range nodes {
		if n.Controller.Leader().Self {
			return n
		}
	}
	return nil
}

// Loopback is the real network on 127.0.0.1. A name keeps its port.
type Loopback struct{ Ports map[string]string }

// Listen implements Network.
func (l *Loopback) Listen(name string) (net.Listener, error) {
	if l.Ports == nil {
		l.Ports = map[string]string{}
	}
	addr, ok := l.Ports[name]
	if !ok {
		addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", addr)
	if err == nil {
		l.Ports[name] = listener.Addr().String()
	}
	return listener, err
}

// Dial implements Network.
func (l *Loopback) Dial(ctx context.Context, _, address string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "tcp", address)
}

// Dir returns the node's data directory.
func (n *Node) Dir() string { return n.config.DataDir }
