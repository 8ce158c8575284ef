package agent

import (
	"math"
	"strconv"
	"strings"

	"rcd/model/selector"
)

// Steps in which changing amounts are told. Each change is an entry in the
// cluster's log, and nobody places a job by the last megabyte.
const (
	gib      = 1 << 30
	byteStep = gib      // from 1 GiB on
	fineStep = 64 << 20 // below, so that a small card does not always say 0
	percent  = 5
	// marginPart is the part of a step by which a value must pass the next one
	// before it is told as that.
	marginPart = 4
)

// rounded returns the value of a label as it is told. Only volatile labels
// (selector.Volatile) are rounded, and always down, so that no job is promised
// what is not there:
//
//   - amounts of memory to 1 GiB, below that to 64 MiB: numbers with K, M, G or
//     T, which are powers of 1024 as in selectors, and plain numbers that count
//     bytes, because the key says so (disk_free_bytes) or because they are too
//     large to count anything else (64 MiB and more);
//   - percentages ("37%") to 5;
//   - other numbers, such as slots_free=3, and texts not at all.
//
// The unit stays. shown is how the label was told last, "" if it was not: a
// value that falls below it is told at once, one that rises only once it is a
// quarter of a step past the next, so that fluttering around an edge tells
// nothing.
func rounded(key, value, shown string) string {
	if !selector.Volatile(key) {
		return value
	}
	now, ok := parseAmount(key, value)
	if !ok {
		return value
	}
	if last, ok := parseAmount(key, shown); ok && last.unit == now.unit && last == last.down() {
		if step := last.step(); now.n >= last.n && now.n < last.n+step+step/marginPart {
			return shown
		}
	}
	return now.down().String()
}

// amount is a number of bytes, or of percent.
type amount struct {
	n    float64
	unit string // as it was written: "", K, M, G, T or %
}

// parseAmount returns false for what is not rounded. Digits and a point is all
// that a number has.
func parseAmount(key, text string) (amount, bool) {
	digits := strings.TrimRight(text, "kKmMgGtT%")
	a := amount{unit: text[len(digits):]}
	if len(a.unit) > 1 || digits == "" || strings.Trim(digits, "0123456789.") != "" {
		return a, false
	}
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return a, false
	}
	a.n = n * a.scale()
	if a.unit == "" && !strings.Contains(key, "bytes") && a.n < fineStep {
		return a, false
	}
	return a, true
}

// scale is how many bytes, or percent, one of the unit is.
func (a amount) scale() float64 {
	switch strings.ToUpper(a.unit) {
	case "K":
		return 1 << 10
	case "M":
		return 1 << 20
	case "G":
		return gib
	case "T":
		return 1 << 40
	}
	return 1
}

func (a amount) step() float64 {
	switch {
	case a.unit == "%":
		return percent
	case a.n < gib:
		return fineStep
	}
	return byteStep
}

func (a amount) down() amount {
	a.n = math.Floor(a.n/a.step()) * a.step()
	return a
}

func (a amount) String() string {
	return strconv.FormatFloat(a.n/a.scale(), 'f', -1, 64) + a.unit
}
