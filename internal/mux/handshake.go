package mux

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	// handshakeTimeout bounds all four frames together: three round trips on a
	// bad link, and a silent peer holds a place no longer than this.
	handshakeTimeout = 3 * time.Second

	// maxFrame bounds a handshake frame in bytes, without its length.
	maxFrame = 4096

	// maxSentence bounds the sentence of a refusal in bytes.
	maxSentence = 1024

	version   = 1
	nonceSize = 32
	macSize   = sha256.Size
)

var magic = [4]byte{'R', 'C', 'M', 'X'}

// The refusals, as the dialer sees them. Each is wrapped with the listener's
// sentence. Nothing has happened on the listener's side.
var (
	// ErrUnauthorized: the other side does not know the key.
	ErrUnauthorized = errors.New("unauthorized")
	// ErrIdentityMismatch: another cluster, generation or incarnation.
	ErrIdentityMismatch = errors.New("identity mismatch")
	// ErrBusy: too many connections of this type wait to be accepted; try
	// again. (Past the bound of handshakes the connection is just closed.)
	ErrBusy = errors.New("too many connections waiting")
	// ErrNotServed: nothing on the other side serves this type (now).
	ErrNotServed = errors.New("stream type not served")
	// ErrVersion: the other side speaks another version of the handshake.
	ErrVersion = errors.New("handshake version not supported")
	// ErrNoKey: an empty key is no key.
	ErrNoKey = errors.New("no key given")
)

// status is on the wire: append only.
type status byte

const (
	statusOK               status = 0
	statusUnauthorized     status = 1
	statusIdentityMismatch status = 2
	statusBusy             status = 3
	statusNotServed        status = 4
	statusVersion          status = 5
)

func (s status) err() error {
	switch s {
	case statusUnauthorized:
		return ErrUnauthorized
	case statusIdentityMismatch:
		return ErrIdentityMismatch
	case statusBusy:
		return ErrBusy
	case statusNotServed:
		return ErrNotServed
	case statusVersion:
		return ErrVersion
	}
	return fmt.Errorf("%w: status %d", errMalformed, s)
}

// refusal is a status with the sentence that goes with it.
type refusal struct {
	status   status
	sentence string
}

func (r *refusal) Error() string { return r.status.err().Error() + ": " + r.sentence }
func (r *refusal) Unwrap() error { return r.status.err() }

// hello is the first frame.
type hello struct {
	version  byte
	kind     Type
	nonce    [nonceSize]byte
	identity Identity
}

func (h hello) encode() []byte {
	b := append([]byte{}, magic[:]...)
	b = append(b, h.version, byte(h.kind))
	b = append(b, h.nonce[:]...)
	return h.identity.append(b)
}

func parseHello(frame []byte) (hello, error) {
	p := parser{rest: frame}
	if [4]byte(p.take(len(magic))) != magic {
		return hello{}, fmt.Errorf("%w: wrong magic", errMalformed)
	}
	h := hello{version: p.byte()}
	if p.failed {
		return hello{}, errMalformed
	}
	if h.version != version {
		return h, nil // the rest is the other version's business
	}
	h.kind = Type(p.byte())
	h.nonce = [nonceSize]byte(p.take(nonceSize))
	h.identity = p.identity()
	return h, p.end()
}

// challenge is the second frame when the listener goes on.
type challenge struct {
	nonce    [nonceSize]byte
	identity Identity
}

func (c challenge) encode() []byte {
	return c.identity.append(append([]byte{byte(statusOK)}, c.nonce[:]...))
}

// parseChallenge returns a *refusal when the second frame is one.
func parseChallenge(frame []byte) (challenge, error) {
	p := parser{rest: frame}
	if s := status(p.byte()); s != statusOK || p.failed {
		if p.failed {
			return challenge{}, errMalformed
		}
		sentence, err := parseSentence(&p)
		if err != nil {
			return challenge{}, err
		}
		return challenge{}, &refusal{s, sentence}
	}
	c := challenge{nonce: [nonceSize]byte(p.take(nonceSize)), identity: p.identity()}
	return c, p.end()
}

func (r *refusal) encode() []byte {
	sentence := r.sentence[:min(len(r.sentence), maxSentence)]
	b := binary.BigEndian.AppendUint16([]byte{byte(r.status)}, uint16(len(sentence)))
	return append(b, sentence...)
}

func parseSentence(p *parser) (string, error) {
	n := int(binary.BigEndian.Uint16(p.take(2)))
	if n > maxSentence {
		return "", errMalformed
	}
	sentence := string(p.take(n))
	return sentence, p.end()
}

// verdict is the fourth frame. Its MAC covers status and sentence, so that a
// refusal for identity is known to come from someone with the key; for
// statusUnauthorized there is no key in common and the MAC is zero.
func encodeVerdict(r *refusal, mac []byte) []byte {
	return append(r.encode(), mac...)
}

func parseVerdict(frame []byte) (r *refusal, body, mac []byte, err error) {
	if len(frame) < macSize {
		return nil, nil, nil, errMalformed
	}
	body, mac = frame[:len(frame)-macSize], frame[len(frame)-macSize:]
	p := parser{rest: body}
	s := status(p.byte())
	sentence, err := parseSentence(&p)
	return &refusal{s, sentence}, body, mac, err
}

// sum is the MAC over parts. Every part is length-prefixed, so that no two
// transcripts look alike.
func sum(key []byte, label string, parts ...[]byte) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(label))
	var length [4]byte
	for _, part := range parts {
		binary.BigEndian.PutUint32(length[:], uint32(len(part)))
		m.Write(length[:])
		m.Write(part)
	}
	return m.Sum(nil)
}

func newNonce() (nonce [nonceSize]byte) {
	rand.Read(nonce[:]) // never fails (crypto/rand)
	return nonce
}

func writeFrame(w io.Writer, payload []byte) error {
	_, err := w.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(payload))), payload...))
	return err
}

// readFrame reads exactly one frame: what follows belongs to the stream.
func readFrame(r io.Reader) ([]byte, error) {
	var length [2]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(length[:]))
	if n == 0 || n > maxFrame {
		return nil, fmt.Errorf("%w: %d bytes", errMalformed, n)
	}
	payload := make([]byte, n)
	_, err := io.ReadFull(r, payload)
	return payload, err
}

// dialerHandshake runs the dialer's side and returns the listener's identity.
// check may refuse it before the dialer proves its key. Deadlines are the
// caller's.
func dialerHandshake(c net.Conn, kind Type, self Identity, key []byte, check func(Identity) error) (Identity, error) {
	first := hello{version: version, kind: kind, nonce: newNonce(), identity: self}.encode()
	if err := writeFrame(c, first); err != nil {
		return Identity{}, fmt.Errorf("send hello: %w", err)
	}
	second, err := readFrame(c)
	if err != nil {
		return Identity{}, fmt.Errorf("read challenge: %w", err)
	}
	their, err := parseChallenge(second)
	if err != nil {
		return Identity{}, err
	}
	if err := check(their.identity); err != nil {
		return Identity{}, err
	}
	third := sum(key, "dialer", first, second)
	if err := writeFrame(c, third); err != nil {
		return Identity{}, fmt.Errorf("send proof: %w", err)
	}
	fourth, err := readFrame(c)
	if err != nil {
		return Identity{}, fmt.Errorf("read verdict: %w", err)
	}
	r, body, mac, err := parseVerdict(fourth)
	if err != nil {
		return Identity{}, err
	}
	if r.status == statusUnauthorized {
		return Identity{}, r
	}
	if !hmac.Equal(mac, sum(key, "listener", first, second, third, body)) {
		return Identity{}, &refusal{statusUnauthorized, "the listener does not know our key"}
	}
	if r.status != statusOK {
		return Identity{}, r
	}
	return their.identity, nil
}

// accepted is what the listener learned from a good handshake.
type accepted struct {
	hello   hello
	keyName string
}

// gate is what the listener's side of a handshake asks of its owner.
type gate struct {
	self func() Identity
	keys func(Type) []Key
	// admit refuses an authenticated peer; nil lets it in. When it returns nil
	// and the handshake fails afterwards, undo is called.
	admit func(hello) *refusal
	undo  func(hello)
}

// listenerHandshake runs the listener's side.
func listenerHandshake(c net.Conn, g gate) (accepted, error) {
	first, err := readFrame(c)
	if err != nil {
		return accepted{}, fmt.Errorf("read hello: %w", err)
	}
	h, err := parseHello(first)
	if err != nil {
		return accepted{}, err
	}
	if h.version != version {
		return accepted{}, refuse(c, &refusal{statusVersion, fmt.Sprintf("this side speaks version %d", version)})
	}
	if !h.kind.valid() {
		return accepted{}, refuse(c, &refusal{statusNotServed, h.kind.String() + " is no stream type of this version"})
	}
	second := challenge{nonce: newNonce(), identity: g.self()}.encode()
	if err := writeFrame(c, second); err != nil {
		return accepted{}, fmt.Errorf("send challenge: %w", err)
	}
	third, err := readFrame(c)
	if err != nil {
		return accepted{}, fmt.Errorf("read proof: %w", err)
	}
	key, ok := findKey(g.keys(h.kind), third, first, second)
	if !ok {
		r := &refusal{statusUnauthorized, unauthorizedSentence(h.kind)}
		if err := writeFrame(c, encodeVerdict(r, make([]byte, macSize))); err != nil {
			return accepted{}, fmt.Errorf("%w (%w)", r, err)
		}
		return accepted{}, r
	}
	r := g.admit(h)
	admitted := r == nil
	if admitted {
		r = &refusal{statusOK, ""}
	}
	mac := sum(key.Secret, "listener", first, second, third, r.encode())
	if err := writeFrame(c, encodeVerdict(r, mac)); err != nil {
		if admitted {
			g.undo(h)
		}
		return accepted{}, fmt.Errorf("send verdict: %w", err)
	}
	if !admitted {
		return accepted{}, r
	}
	return accepted{h, key.Name}, nil
}

func unauthorizedSentence(kind Type) string {
	if kind.Controllers() {
		return "the cluster key is not ours: give every controller the same RCD_CLUSTER_KEY"
	}
	return "the worker token is not known: take one that RC_TOKENS gives the worker role on the controllers"
}

// findKey tries every key, whether or not one has matched, so that the time
// taken says nothing about which.
func findKey(keys []Key, proof, first, second []byte) (found Key, ok bool) {
	for _, key := range keys {
		if len(key.Secret) > 0 && hmac.Equal(proof, sum(key.Secret, "dialer", first, second)) && !ok {
			found, ok = key, true
		}
	}
	return found, ok
}

// refuse answers in place of the second frame.
func refuse(c net.Conn, r *refusal) error {
	if err := writeFrame(c, r.encode()); err != nil {
		return fmt.Errorf("%w (%w)", r, err)
	}
	return r
}
