package copies

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"rcd/agent/spool"
)

// DefaultLimit is a fifth of the disk.
const DefaultLimit = "20%"

const (
	// overhead is what a copy counts beside its segments: a directory and two small files.
	overhead = 12 << 10

	// leastFree is the watermark of a large disk; of a small one it is a tenth.
	leastFree = 2 << 30
)

// Limit is how much all copies together may take: of the disk, or in bytes. The zero Limit keeps none.
type Limit struct {
	Percent int
	Bytes   int64
}

var errLimit = errors.New("the limit of copies is a part of the disk such as 20%, a number of bytes such as 500G, or 0 to keep none")

// ParseLimit reads "20%", "500G" (powers of 1024: K, M, G, T) or "0".
func ParseLimit(text string) (Limit, error) {
	if digits, ok := strings.CutSuffix(text, "%"); ok {
		n, err := strconv.Atoi(digits)
		if err != nil || n < 0 || n > 90 {
			return Limit{}, fmt.Errorf("%w, at most 90%% (not %q)", errLimit, text)
		}
		return Limit{Percent: n}, nil
	}
	digits, shift := text, 0
	if i := strings.IndexAny(text, "KMGT"); i >= 0 && i == len(text)-1 {
		digits, shift = text[:i], 10*(1+strings.IndexByte("KMGT", text[i]))
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64>>shift {
		return Limit{}, fmt.Errorf("%w (not %q)", errLimit, text)
	}
	if n > 0 && n<<shift < 4*spool.MinBound {
		return Limit{}, fmt.Errorf("%w, and not below 1M (not %q)", errLimit, text)
	}
	return Limit{Bytes: n << shift}, nil
}

// of returns the limit in bytes on a disk.
func (l Limit) of(disk int64) int64 {
	if l.Percent > 0 {
		return disk / 100 * int64(l.Percent)
	}
	return l.Bytes
}

// watermark is the free space below which nothing is copied.
func watermark(disk int64) int64 { return min(disk/10, leastFree) }

// statDisk returns the size of the disk under a directory and what is free on it.
func statDisk(dir string) (size, free int64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, 0, fmt.Errorf("look at the disk of %q: %w", dir, err)
	}
	return int64(s.Blocks) * s.Bsize, int64(s.Bavail) * s.Bsize, nil
}
