package client

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
)

// The checksums that a device host may have a program for.
const (
	sumSHA256 = "sha256"
	sumCRC    = "cksum"
)

// tally takes the checksums of a stream of bytes as it passes.
type tally struct {
	n      int64
	sha    hash.Hash
	crc    *cksum
	mark   int64             // where to take the sums once more, on the way
	atMark map[string]string // nil before
}

// newTally takes the SHA-256, and a cksum if the far side may have no other.
func newTally(withCRC bool) *tally {
	t := &tally{sha: sha256.New(), mark: -1}
	if withCRC {
		t.crc = &cksum{}
	}
	return t
}

// markAt has the sums of the first n bytes kept as well.
func (t *tally) markAt(n int64) {
	if t.mark = n; n == 0 {
		t.atMark = t.sums()
	}
}

// Write never fails.
func (t *tally) Write(p []byte) (int, error) {
	if t.n < t.mark && t.mark <= t.n+int64(len(p)) {
		cut := t.mark - t.n
		t.add(p[:cut])
		t.atMark = t.sums()
		t.add(p[cut:])
		return len(p), nil
	}
	t.add(p)
	return len(p), nil
}

func (t *tally) add(p []byte) {
	t.n += int64(len(p))
	t.sha.Write(p)
	if t.crc != nil {
		t.crc.add(p)
	}
}

// sums returns the checksums so far, by their names, as the scripts print them.
func (t *tally) sums() map[string]string {
	all := map[string]string{sumSHA256: hex.EncodeToString(t.sha.Sum(nil))}
	if t.crc != nil {
		all[sumCRC] = fmt.Sprintf("%d:%d", t.crc.sum(t.n), t.n)
	}
	return all
}

// cksum is the CRC of POSIX cksum: most significant bit first, the length
// behind the bytes, inverted.
type cksum struct{ state uint32 }

var cksumTable = func() (table [256]uint32) {
	for i := range table {
		c := uint32(i) << 24
		for range 8 {
			if c&(1<<31) != 0 {
				c = c<<1 ^ 0x04c11db7
			} else {
				c <<= 1
			}
		}
		table[i] = c
	}
	return table
}()

func (c *cksum) add(p []byte) {
	s := c.state
	for _, b := range p {
		s = s<<8 ^ cksumTable[byte(s>>24)^b]
	}
	c.state = s
}

func (c *cksum) sum(length int64) uint32 {
	end := cksum{c.state}
	for ; length > 0; length >>= 8 {
		end.add([]byte{byte(length)})
	}
	return ^end.state
}
