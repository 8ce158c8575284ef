package selector

import (
	"math/big"
	"strings"
)

// operand is one side of a comparison with what can be known of it beforehand.
type operand struct {
	text    string
	number  *decimal // nil: not a plain number
	bare    string   // without the v of v1.2.3
	version bool     // bare begins with a digit and has two or more dots
	digit   bool     // bare begins with a digit
}

func newOperand(text string) operand {
	text = strings.TrimSpace(text)
	o := operand{text: text, number: parseDecimal(text), bare: text}
	if len(text) > 1 && (text[0] == 'v' || text[0] == 'V') && isDigit(text[1]) {
		o.bare = text[1:]
	}
	o.digit = o.bare != "" && isDigit(o.bare[0])
	o.version = o.digit && strings.Count(o.bare, ".") >= 2
	return o
}

// equal is how = and != see two values.
func equal(a, b operand) bool {
	if order, ok := ordered(a, b); ok {
		return order == 0
	}
	return a.text == b.text
}

// compare is how >= and <= see two values; false when a number meets a text.
func compare(a, b operand) (int, bool) {
	if order, ok := ordered(a, b); ok {
		return order, true
	}
	if a.number != nil || b.number != nil {
		return 0, false
	}
	return strings.Compare(a.text, b.text), true
}

// ordered compares two plain numbers, or two versions when one of them has two
// or more dots; false when neither rule applies.
func ordered(a, b operand) (int, bool) {
	if a.number != nil && b.number != nil {
		return a.number.compare(b.number), true
	}
	if (a.version || b.version) && a.digit && b.digit {
		return compareVersions(a.bare, b.bare), true
	}
	return 0, false
}

// decimal is mantissa × 10^exponent, exactly.
type decimal struct {
	mantissa *big.Int
	exponent int
}

// Bounds of what is taken for a number; what is beyond is text. They keep a
// label from costing more than its own length.
const (
	maxDigits   = 128
	maxExponent = 400 // a double ends at 308
)

// parseDecimal returns the number in s, or nil: an optional sign, digits with
// an optional point, an optional decimal exponent and an optional suffix K, M,
// G or T in any case for powers of 1024. inf, nan, hex and _ are text.
func parseDecimal(s string) *decimal {
	if s == "" || len(s) > maxDigits {
		return nil
	}
	shift := uint(0)
	switch s[len(s)-1] {
	case 'k', 'K':
		shift = 10
	case 'm', 'M':
		shift = 20
	case 'g', 'G':
		shift = 30
	case 't', 'T':
		shift = 40
	}
	if shift > 0 {
		s = s[:len(s)-1]
	}
	negative := strings.HasPrefix(s, "-")
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	exponent := 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		e, ok := parseExponent(s[i+1:])
		if !ok {
			return nil
		}
		exponent, s = e, s[:i]
	}
	whole, fraction, _ := strings.Cut(s, ".")
	digits := whole + fraction
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return nil
	}
	mantissa, ok := new(big.Int).SetString(digits, 10)
	if !ok {
		return nil
	}
	mantissa.Lsh(mantissa, shift)
	if negative {
		mantissa.Neg(mantissa)
	}
	return &decimal{mantissa: mantissa, exponent: exponent - len(fraction)}
}

func parseExponent(s string) (int, bool) {
	negative := strings.HasPrefix(s, "-")
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	if s == "" {
		return 0, false
	}
	n := 0
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n = n*10 + int(c-'0'); n > maxExponent {
			return 0, false
		}
	}
	if negative {
		n = -n
	}
	return n, true
}

func (d *decimal) compare(e *decimal) int {
	if d.exponent == e.exponent {
		return d.mantissa.Cmp(e.mantissa)
	}
	if d.exponent < e.exponent {
		return d.mantissa.Cmp(scale(e, e.exponent-d.exponent))
	}
	return scale(d, d.exponent-e.exponent).Cmp(e.mantissa)
}

// scale returns the mantissa times 10^n.
func scale(d *decimal, n int) *big.Int {
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil)
	return power.Mul(power, d.mantissa)
}

// compareVersions compares dotted versions piece by piece: runs of digits as
// numbers, other runs as text, a number above a text, and a missing piece like
// a zero, so 550 equals 550.0 and is below 580.173.02, and 6.8.0 is below
// 6.8.0-45-generic.
func compareVersions(a, b string) int {
	for {
		var x, y string
		x, a = nextPiece(a)
		y, b = nextPiece(b)
		if x == "" && y == "" {
			return 0
		}
		if order := comparePieces(x, y); order != 0 {
			return order
		}
	}
}

// nextPiece cuts the first run of digits or of other characters off s, without
// separators and without leading zeros.
func nextPiece(s string) (piece, rest string) {
	s = strings.TrimLeft(s, ".-_+~ ")
	if s == "" {
		return "", ""
	}
	end := 0
	number := isDigit(s[0])
	for end < len(s) && isDigit(s[end]) == number && !strings.ContainsRune(".-_+~ ", rune(s[end])) {
		end++
	}
	piece, rest = s[:end], s[end:]
	if number {
		if piece = strings.TrimLeft(piece, "0"); piece == "" {
			piece = "0"
		}
	}
	return piece, rest
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func comparePieces(x, y string) int {
	if x == "" {
		return -comparePieces(y, "")
	}
	switch xNumber, yNumber := isDigit(x[0]), y != "" && isDigit(y[0]); {
	case y == "" && x == "0":
		return 0
	case y == "":
		return 1
	case xNumber && yNumber && len(x) != len(y):
		return len(x) - len(y)
	case xNumber && !yNumber:
		return 1
	case !xNumber && yNumber:
		return -1
	}
	return strings.Compare(x, y)
}
