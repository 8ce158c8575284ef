package client

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"rcd/internal/ident"
	"rcd/wire"
)

const (
	// DefaultController is asked when no address is given.
	DefaultController = "http://localhost:8080"

	// DefaultPatience is how long a simple call looks for a controller that
	// answers: an election takes seconds, the restart of a node half a minute.
	DefaultPatience = 30 * time.Second

	// DefaultLongPatience is the same for calls on which a running job hangs.
	// The ancestor gave up after 8 s, and an outage of 40 s cost it jobs that
	// went on unharmed.
	DefaultLongPatience = 5 * time.Minute

	// maxControllers bounds the list of addresses; five controllers behind two
	// addresses each are more than anybody has.
	maxControllers = 32
)

// Options say whom to ask and how.
type Options struct {
	// Controllers are the addresses of any nodes: URLs, or "host:port" for
	// plain HTTP. None means DefaultController. The first that answers is
	// asked again first the next time.
	Controllers []string

	// Token goes into every request as a bearer token unless it is empty.
	Token string

	// Dial makes connections; nil means a net.Dialer. It must return soon
	// after its context ends.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Notify, if not nil, is told what a person at a terminal should know. It
	// is called by one goroutine at a time.
	Notify func(Notice)

	// Patience and LongPatience bound how long calls look for a controller
	// that answers; zero means the defaults. The long one is for Submit,
	// WaitScheduled, WaitTerminal, Stream and Logs.
	Patience     time.Duration
	LongPatience time.Duration
}

// Client asks controllers. All methods may be called concurrently; each ends
// soon after its context does, then with the context's error.
type Client struct {
	token        string
	nodes        []*node
	http         *http.Client
	transport    *http.Transport
	dial         func(ctx context.Context, network, address string) (net.Conn, error)
	patience     time.Duration
	longPatience time.Duration

	notifying sync.Mutex // held while notify runs
	notify    func(Notice)

	mu      sync.Mutex
	first   int  // the node to ask first
	reached bool // some node has answered at some time
}

// New returns a client. It does not connect to anything. Close it to let go of
// idle connections.
func New(o Options) (*Client, error) {
	addresses := o.Controllers
	if len(addresses) == 0 {
		addresses = []string{DefaultController}
	}
	if len(addresses) > maxControllers {
		return nil, fmt.Errorf("%d controller addresses given, at most %d are taken; name a few nodes, any of them will do",
			len(addresses), maxControllers)
	}
	c := &Client{
		token: o.Token, dial: o.Dial, notify: o.Notify,
		patience: o.Patience, longPatience: o.LongPatience,
	}
	if c.dial == nil {
		c.dial = (&net.Dialer{Timeout: connectTimeout, FallbackDelay: familyHedge}).DialContext
	}
	if c.patience <= 0 {
		c.patience = DefaultPatience
	}
	if c.longPatience <= 0 {
		c.longPatience = DefaultLongPatience
	}
	for _, address := range addresses {
		n, err := parseNode(address)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(c.nodes, func(m *node) bool { return m.base == n.base }) {
			c.nodes = append(c.nodes, n)
		}
	}
	// One transport for all nodes. HTTP/2 is never used: the byte route is an
	// upgrade, which HTTP/2 does not have.
	c.transport = &http.Transport{
		DialContext:         c.dial,
		TLSHandshakeTimeout: connectTimeout,
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     30 * time.Second,
	}
	c.http = &http.Client{Transport: c.transport, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse // no route redirects; a proxy's login page is no answer
	}}
	return c, nil
}

// Close drops idle connections. Calls in flight are not affected.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

// node is one controller address.
type node struct {
	base string // "http://host:port", no slash at the end
	url  *url.URL

	mu   sync.Mutex
	name string // as the node calls itself, "" until it has answered
}

// parseNode takes a URL or "host:port".
func parseNode(address string) (*node, error) {
	text := strings.TrimSpace(address)
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "":
		return nil, fmt.Errorf("controller address %q is no URL; write it like http://host:8080 or host:8080", withoutSecrets(address))
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("controller address %q: %s is not spoken; use http or https", withoutSecrets(address), u.Scheme)
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return nil, fmt.Errorf("controller address %q: only scheme, host and port are allowed; a token belongs into RC_TOKEN", withoutSecrets(address))
	}
	u.Path = strings.TrimRight(u.Path, "/")
	return &node{base: u.String(), url: u}, nil
}

// withoutSecrets is an address as a message may show it: a password or a token
// in one is refused, and must not get into logs by that.
func withoutSecrets(address string) string {
	if i := strings.IndexAny(address, "?#"); i >= 0 {
		address = address[:i+1] + "…"
	}
	before, rest := "", address
	if i := strings.Index(address, "://"); i >= 0 {
		before, rest = address[:i+len("://")], address[i+len("://"):]
	}
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		rest = "…" + rest[i:]
	}
	return before + rest
}

// label returns what to call the node in front of people.
func (n *node) label() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.name != "" {
		return n.name
	}
	return n.url.Host
}

// learn takes what an answer says about the node that gave it.
func (n *node) learn(h http.Header) {
	if name := h.Get(wire.HeaderNode); name != "" {
		n.mu.Lock()
		n.name = name
		n.mu.Unlock()
	}
}

// inOrder returns all nodes, the one to ask first at the front.
func (c *Client) inOrder() []*node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(slices.Clone(c.nodes[c.first:]), c.nodes[:c.first]...)
}

// prefer makes n the first to ask.
func (c *Client) prefer(n *node) {
	i := slices.Index(c.nodes, n)
	if i < 0 {
		return // a node named for one call
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.first, c.reached = i, true
}

// shun makes the node after n the first to ask, if n is the first now.
func (c *Client) shun(n *node) {
	i := slices.Index(c.nodes, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	if i >= 0 && c.first == i {
		c.first = (i + 1) % len(c.nodes)
	}
}

// everReached reports whether any node has answered this client yet.
func (c *Client) everReached() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reached
}

// NewRequestID returns an ID for one change that is to happen once, however often
// it is asked for.
func NewRequestID() string { return ident.New() }
