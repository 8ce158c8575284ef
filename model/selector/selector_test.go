package selector

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func labels(pairs ...string) func(string) (string, bool) {
	return func(key string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == key {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

func mustParse(t testing.TB, text string) Selector {
	t.Helper()
	s, err := Parse(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return s
}

func TestMatchFollowsTheRules(t *testing.T) {
	device := labels("vram", "80G", "rack", "r3", "vendor", "nvidia", "driver", "580.173.02",
		"kernel", "6.8.0-45-generic", "n", "1e3", "half", "0.5", "hex", "0x10", "under", "1_0", "inf", "inf", "nan", "nan",
		"tag", "v1.10.0", "old", "1.9.9", "card", "V100", "dot", "1.5", "free", "-1K",
		"big", "123456789012345678901234567890", "model", "NVIDIA A100 (80GB)", "neg", "-2", "host", "b.example.com", "ip", "10.0.0.7")
	for _, c := range []struct {
		text string
		want bool
	}{
		{"vram>=40G", true}, {"vram>=80g", true}, {"vram>=81G", false}, {"vram<=80G", true}, {"vram<=79.9G", false},
		{"vram=81920M", true}, {"vram=85899345920", true}, {"vram!=80G", false}, {"vram!=81G", true},
		{"rack=r3", true}, {"rack!=r3", false}, {"rack>=r2", true}, {"rack<=r2", false}, {" rack = r3 , vram >= 1 ", true},
		{"none=1", false}, {"none!=1", false}, {"none>=0", false},
		// Mixed: an order never matches, equality compares texts.
		{"rack>=3", false}, {"rack<=3", false}, {"rack=3", false}, {"rack!=3", true}, {"vram>=big", false}, {"vram!=big", true},
		// Exact decimals, and what is text.
		{"n=1000", true}, {"n>=1000.0000000000000000000000001", false}, {"half=.5", true}, {"half=0.50", true},
		{"big>=123456789012345678901234567889.9", true}, {"big<=123456789012345678901234567889.9", false},
		{"hex=16", false}, {"hex=0x10", true}, {"under=10", false}, {"inf>=1", false}, {"inf=inf", true}, {"nan=nan", true},
		{"neg<=-1", true}, {"neg>=-2.0", true}, {"neg=+2", false},
		// Versions.
		{"driver>=550", true}, {"driver>=580.173", true}, {"driver>=580.174", false}, {"driver<=581", true}, {"driver=580.173.2", true},
		{"driver>=5800", false}, {"kernel>=6.5", true}, {"kernel>=6.8.0", true}, {"kernel<=6.8.0", false}, {"kernel>=6.10.0", false},
		{"ip>=10.0.0.0", true}, {"ip<=10.0.0.6", false}, {"host=b.example.com", true}, {"host>=a.example.com", true},
		{"old<=1.10.0", true}, {"old>=1.10.0", false}, {"old=1.9.9.0", true}, {"old!=1.9.9", false}, {"old in (1.09.9)", true},
		{"tag>=1.9.9", true}, {"tag>=v1.9.9", true}, {"tag=V1.10.0", true}, {"tag<=v1.9.9", false}, {"tag>=2", false},
		{"card>=V1", true}, {"card<=V1000", true}, {"card>=V11", false}, // no dots: texts
		// One dot on both sides is a number on both; a number meets a version as one.
		{"dot>=1.40", true}, {"dot<=1.40.0", true}, {"dot>=1.5.0", true}, {"driver>=580.2", true}, {"driver>=580.200", false},
		{"driver!=580", true}, {"driver=580", false}, {"driver in (550, 580.173.2)", true}, {"driver>=abc", false},
		// Suffixes are powers of 1024, exactly, in any case, of any number.
		{"vram>=0.078125T", true}, {"vram<=8e1g", true}, {"vram=83886080k", true}, {"vram>=80.0000000000000000000001G", false},
		{"free<=-1024", true}, {"free>=-1.0k", true}, {"free>=-1023", false}, {"vram>=80GB", false}, {"vram!=80GB", true}, {"vram!=80 G", true},
		{"n=1e3", true}, {"n=1E+3", true}, {"n=10000e-1", true}, {"n>=infinity", false}, {"n!=0x3e8", true}, {"n!=1_000", true}, {"n=1000.", true},
		{"nan>=nan", true}, {"inf<=infinity", true}, {"inf>=1e308", false}, {"none!=nan", false},
		// Presence, absence, lists.
		{"rack", true}, {"none", false}, {"!none", true}, {"!rack", false}, {"! none", true},
		{"rack in (r1, r3)", true}, {"rack in (r1,r2)", false}, {"none in (r1)", false}, {"vram in (40G,80G)", true},
		{"rack in (r3),vram>=1", true}, {"vram>=1, rack in (r3) ", true}, {"rack in(r3)", true},
		{"rack in (r3)\t, vram", true}, {"rack in ( r3 )", true}, {"rack in (r1),none", false}, {"none in (r1),rack", false}, {"half in (.50)", true},
		{"model=NVIDIA A100 (80GB)", true}, {"in=1", false}, {"!in", true},
	} {
		if got := mustParse(t, c.text).Match(device); got != c.want {
			t.Errorf("%q matches: %v, want %v", c.text, got, c.want)
		}
	}
}

func TestErrorsSayWhereAndWhat(t *testing.T) {
	for _, c := range []struct {
		text   string
		offset int
		hint   string
	}{
		{"", 0, "at least one term"},
		{"  ", 0, "at least one term"},
		{"==", 0, "label name comes first"},
		{"a=1,,b=2", 4, "empty term"},
		{"a=1,", 4, "empty term"},
		{"a=1, b>5", 4, ">="},
		{"a<5", 0, "<="},
		{"a=b=c", 0, "put a comma"},
		{"a>=", 0, "write its name alone"},
		{"a in ()", 0, "value is missing"},
		{"a in (b", 0, "close the list"},
		{"a in (b) c", 9, "comma comes after"},
		{"a b=1", 0, "no spaces"},
		{"!", 0, "label name comes first"},
		{"!!a", 0, "no spaces"},
		{"a=\xff", 0, "UTF-8"},
		{strings.Repeat("a", MaxLength+1), MaxLength, "longer"},
		{strings.Repeat("a,", MaxTerms) + "a", 2 * MaxTerms, "more than"},
	} {
		_, err := Parse(c.text)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%q: %v, want an *Error", c.text, err)
			continue
		}
		if e.Offset != c.offset || !strings.Contains(err.Error(), c.hint) {
			t.Errorf("%q: %v, want offset %d and %q", c.text, err, c.offset, c.hint)
		}
	}
}

func TestCanonicalTextIgnoresSpellingOnly(t *testing.T) {
	s := mustParse(t, " b >= 2 ,a in ( y,x , y), !c ,b>=2")
	if got, want := s.String(), "!c,a in (x,y),b>=2"; got != want {
		t.Errorf("canonical %q, want %q", got, want)
	}
	if got, want := s.Keys(), []string{"a", "b", "c"}; !slices.Equal(got, want) {
		t.Errorf("keys %v, want %v", got, want)
	}
}

func TestVolatileLabelsDoNotDecideWhetherADeviceCouldServe(t *testing.T) {
	s := mustParse(t, "vram>=40G,gpu0.vram_free>=30G,disk_free_bytes>=1T")
	if !s.Volatile() || mustParse(t, "vram>=40G").Volatile() {
		t.Error("volatile keys are not told from others")
	}
	busy := labels("vram", "40G", "gpu0.vram_free", "1G")
	if s.Match(busy) || !s.MatchStable(busy) {
		t.Error("a device that is full just now must match but for its volatile labels")
	}
	if s.MatchStable(labels("vram", "20G", "gpu0.vram_free", "40G")) {
		t.Error("a device that is too small must not match")
	}
}

// FuzzParse: whatever parses has a canonical text that parses to the same
// selector, which judges every set of labels alike, and nothing panics.
func FuzzParse(f *testing.F) {
	for _, text := range []string{"vram>=40G, rack in (a,b),!x,y", "a=1e400", "a!=.5e-3K", "driver>=550.1.2", "a in (b(c)", "a=b(c", "in in (in)", "a>=+0,b<=-0"} {
		f.Add(text, "580.173.02")
	}
	f.Fuzz(func(t *testing.T, text, label string) {
		s, err := Parse(text)
		if err != nil {
			if err.Error() == "" || (Selector{}).String() != s.String() {
				t.Fatal("an error without words, or with a selector")
			}
			return
		}
		again, err := Parse(s.String())
		if err != nil {
			t.Fatalf("%q became %q: %v", text, s, err)
		}
		if again.String() != s.String() || !slices.Equal(again.Keys(), s.Keys()) || again.Volatile() != s.Volatile() {
			t.Fatalf("%q, then %q, then %q", text, s, again)
		}
		for i, get := range labelSets(s, label) {
			if s.Match(get) != again.Match(get) || s.MatchStable(get) != again.MatchStable(get) {
				t.Fatalf("%q and %q judge %q differently, set %d", text, s, label, i)
			}
			if s.Match(get) && !s.MatchStable(get) {
				t.Fatalf("%q matches what it could never match: %q, set %d", text, label, i)
			}
			if s.Match(get) != matchAlone(s, get) {
				t.Fatalf("%q is not the conjunction of its terms: %q, set %d", text, label, i)
			}
		}
	})
}

// labelSets are sets of labels that a selector may tell apart: one value for
// every key, none at all, every other key, and the values it asks for itself.
func labelSets(s Selector, label string) []func(string) (string, bool) {
	wanted := map[string]string{}
	for i := range s.terms {
		if t := &s.terms[i]; len(t.values) > 0 {
			wanted[t.key] = t.values[len(t.values)-1].text
		}
	}
	return []func(string) (string, bool){
		func(string) (string, bool) { return label, true },
		func(string) (string, bool) { return "", false },
		func(key string) (string, bool) { return label, len(key)%2 == 0 },
		func(key string) (string, bool) { v, ok := wanted[key]; return v, ok },
		func(key string) (string, bool) { return wanted[key] + label, true },
	}
}

// matchAlone parses and judges each term of the canonical text by itself.
func matchAlone(s Selector, get func(string) (string, bool)) bool {
	for i := range s.terms {
		alone, err := Parse(s.terms[i].text)
		if err != nil || !alone.Match(get) {
			return false
		}
	}
	return true
}

// FuzzCompare: both orders of one pair agree, and equality is one of them.
func FuzzCompare(f *testing.F) {
	for _, pair := range [][2]string{{"1", "1.0"}, {"550", "580.173.02"}, {"1K", "1024"}, {"6.8.0", "6.8.0-rc1"}, {"a", "b"}, {"1.0.0", "x"}, {"1e400", "1e-400"}, {"v1.2.3", "1.2.3"}, {"V1", "1.0.0"}, {"+1", "1.0.0"}} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, x, y string) {
		a, b := newOperand(x), newOperand(y)
		one, ok := compare(a, b)
		two, okToo := compare(b, a)
		if ok != okToo || (ok && sign(one) != -sign(two)) {
			t.Fatalf("%q and %q: %d %v, the other way %d %v", x, y, one, ok, two, okToo)
		}
		if ok && (one == 0) != equal(a, b) {
			t.Fatalf("%q and %q: order %d, equal %v", x, y, one, equal(a, b))
		}
	})
}

func sign(n int) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}
