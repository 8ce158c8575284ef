package selector

import (
	"slices"
	"testing"
)

func TestUnmetNamesTheKeysThatFail(t *testing.T) {
	labels := map[string]string{"vram": "80G", "vram_free": "2G", "rack": "r3"}
	get := func(key string) (string, bool) {
		value, ok := labels[key]
		return value, ok
	}
	for text, want := range map[string][]string{
		"vram>=40G,rack=r3":                       nil,
		"vram>=40G,vram_free>=40G":                {"vram_free"},
		"vram_free>=40G,vram_free<=1G,!rack":      {"rack", "vram_free"},
		"zone in (a,b),rack=r3,vram>=80G,vram<=1": {"vram", "zone"},
	} {
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Unmet(get); !slices.Equal(got, want) || (got == nil) != s.Match(get) {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}
