// Package ident makes the identifiers that are not counted by the replicated
// state: request IDs, cluster IDs, process instances and worker IDs. It must
// never be used where replicas have to agree, because New is random; IDs of
// jobs and leases are counters in the state.
package ident

import (
	"crypto/rand"
	"encoding/base32"
	"strings"

	"github.com/google/uuid"
)

// compactBytes gives NewCompact 80 random bits: among a million of them two
// are equal with a chance below one in a trillion.
const compactBytes = 10

// New returns a random UUID (version 4), 36 lower-case characters.
func New() string { return uuid.NewString() }

// NewCompact returns 16 random characters a-z, 2-7, for names that people read
// in logs and file names.
func NewCompact() string {
	var b [compactBytes]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

// WorkerID returns the worker ID of a host: the UUID version 5 of its name in
// the DNS namespace. The name is taken as it is, not lower-cased, because
// clients compute the same ID from the name they see.
func WorkerID(host string) string {
	return uuid.NewSHA1(uuid.NameSpaceDNS, []byte(host)).String()
}

// IsUUID reports whether s is a UUID in the usual 36-character form.
func IsUUID(s string) bool {
	const uuidLength = 36
	if len(s) != uuidLength {
		return false
	}
	_, err := uuid.Parse(s)
	return err == nil
}
