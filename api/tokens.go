package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"rcd/internal/mux"
)

// Role says which routes a token opens.
type Role string

// The roles. An admin may call every route.
const (
	RoleClient Role = "client"
	RoleWorker Role = "worker"
	RoleAdmin  Role = "admin"
)

// ErrBadTokens means that the text given to ParseTokens cannot be used. The
// message says which entry and why, and never shows a token.
var ErrBadTokens = errors.New("RC_TOKENS refused")

// Tokens are the credentials of the HTTP API and of agents, with their roles.
// They never change; every method may be called concurrently.
type Tokens struct{ list []token }

type token struct {
	secret   string
	sum      [sha256.Size]byte
	identity Identity
}

// Identity says who calls: the role, and the scope of the caller's request
// IDs. Scope never shows the token.
type Identity struct {
	Role  Role
	Scope string // the role, a colon, 12 hexadecimal digits of the token's SHA-256
}

// ParseTokens reads "token:role,token:role". A token may hold colons, because
// the last one splits; blanks around an entry are dropped. An empty text or
// token, an unknown role and a token given twice are refused (ErrBadTokens).
func ParseTokens(text string) (Tokens, error) {
	var t Tokens
	if strings.TrimSpace(text) == "" {
		return t, fmt.Errorf("%w: it is empty; give token:role[,token:role…] with roles client, worker, admin", ErrBadTokens)
	}
	for i, entry := range strings.Split(text, ",") {
		entry = strings.TrimSpace(entry)
		cut := strings.LastIndexByte(entry, ':')
		if cut < 0 {
			return Tokens{}, fmt.Errorf("%w: entry %d has no role; write token:role", ErrBadTokens, i+1)
		}
		secret, role := entry[:cut], Role(entry[cut+1:])
		switch {
		case secret == "":
			return Tokens{}, fmt.Errorf("%w: entry %d has an empty token", ErrBadTokens, i+1)
		case strings.ContainsAny(secret, " \t\r\n"):
			return Tokens{}, fmt.Errorf("%w: the token of entry %d holds a blank, which no header can carry", ErrBadTokens, i+1)
		case role != RoleClient && role != RoleWorker && role != RoleAdmin:
			return Tokens{}, fmt.Errorf("%w: entry %d has an unknown role; use client, worker or admin", ErrBadTokens, i+1)
		}
		sum := sha256.Sum256([]byte(secret))
		for j, other := range t.list {
			if other.sum == sum {
				return Tokens{}, fmt.Errorf("%w: entries %d and %d have the same token; give each role a token of its own", ErrBadTokens, j+1, i+1)
			}
		}
		scope := string(role) + ":" + hex.EncodeToString(sum[:])[:12]
		t.list = append(t.list, token{secret: secret, sum: sum, identity: Identity{Role: role, Scope: scope}})
	}
	return t, nil
}

// Identify returns who a token belongs to. How long it takes does not depend
// on which token matches, nor on how much of one.
func (t Tokens) Identify(secret string) (Identity, bool) {
	sum := sha256.Sum256([]byte(secret))
	var found Identity
	ok := false
	for i := range t.list {
		if subtle.ConstantTimeCompare(t.list[i].sum[:], sum[:]) == 1 {
			found, ok = t.list[i].identity, true
		}
	}
	return found, ok
}

// Workers returns the keys with which agents open their streams: the tokens of
// role worker, and of no other role. It is empty when there are none.
func (t Tokens) Workers() []mux.Key {
	var keys []mux.Key
	for _, entry := range t.list {
		if entry.identity.Role == RoleWorker {
			keys = append(keys, mux.Key{Name: entry.identity.Scope, Secret: []byte(entry.secret)})
		}
	}
	return keys
}
