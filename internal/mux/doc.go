// Package mux lets one TCP port carry several kinds of streams: each accepted
// connection says its type, proves that it knows a key and names who is
// speaking, and only then reaches the channel that serves its type.
//
// The handshake is four frames, each a 2-byte big-endian length and at most
// 4 KiB, and all four within 3 s:
//
//	1 dialer    magic, version, type, nonce, identity
//	2 listener  0, nonce, identity                    (or a refusal)
//	3 dialer    HMAC-SHA256(key, "dialer" | 1 | 2)
//	4 listener  status, sentence, HMAC-SHA256(key, "listener" | 1 | 2 | 3 | status | sentence)
//
// A peer is refused before anything else is decoded: first for its key, then
// for its cluster, generation or incarnation. The frames carry no secret and
// give no privacy; TLS comes outside of them.
//
// It must never start without a key, wait for a slow peer in the accept loop,
// or let a channel that nobody accepts from hold up another.
//
// Start with NewListener and Dialer.Dial, then handshake.go.
package mux
