package agent

import (
	"testing"

	"rcd/model/selector"
)

func TestVolatileAmountsAreRoundedDown(t *testing.T) {
	for _, tt := range []struct{ key, value, want string }{
		{"mem_free", "17000M", "16384M"},
		{"mem_free", "1023M", "960M"},
		{"mem_free", "63M", "0M"},
		{"mem_free", "1024M", "1024M"},
		{"gpu0.vram_free", "79.9G", "79G"},
		{"gpu0.vram_free", "0.99G", "0.9375G"},
		{"vram_free", "1.5t", "1.5t"},
		{"vram_free", "2000000K", "1048576K"},
		{"disk_free_bytes", "10737418241", "10737418240"},
		{"disk_free_bytes", "1000", "0"},
		{"mem_free", "17179869185", "17179869184"},
		{"gpu_free", "37%", "35%"},
		{"gpu_free", "4.9%", "0%"},
		{"gpu_free", "100%", "100%"},
		// Counts and texts are no amounts.
		{"slots_free", "3", "3"},
		{"port_free", "yes", "yes"},
		{"vram_free", "", ""},
		{"vram_free", "1e9G", "1e9G"},
		{"vram_free", "-5G", "-5G"},
		{"vram_free", "infG", "infG"},
		{"vram_free", "1.2.3G", "1.2.3G"},
		{"vram_free", "0x10M", "0x10M"},
		{"vram_free", "5GG", "5GG"},
		// What is not volatile is told as it is.
		{"mem_total", "17000M", "17000M"},
		{"vram", "81559M", "81559M"},
		{"free_beer", "17001M", "17001M"},
	} {
		if got := rounded(tt.key, tt.value, ""); got != tt.want {
			t.Errorf("%s=%s is told as %s, want %s", tt.key, tt.value, got, tt.want)
		}
	}
	// Placement must see what is told as an amount, like what was measured.
	s, err := selector.Parse("mem_free>=16G,vram_free<=0.9375G")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]string{"mem_free": rounded("mem_free", "17000M", ""), "vram_free": rounded("vram_free", "0.99G", "")}
	if !s.Match(func(k string) (string, bool) { v, ok := told[k]; return v, ok }) {
		t.Errorf("%v does not match %s", told, s)
	}
}

func TestAValueThatFluttersAroundAnEdgeIsToldOnce(t *testing.T) {
	for _, tt := range []struct {
		name   string
		values []string
		want   []string
	}{
		{"falls at once, rises past a quarter", []string{"10240M", "10230M", "10250M", "10495M", "10496M", "10240M", "10239M"},
			[]string{"10240M", "9216M", "9216M", "9216M", "10240M", "10240M", "9216M"}},
		{"up by less than a step and a quarter", []string{"10240M", "11264M", "11519M", "11520M"}, []string{"10240M", "10240M", "10240M", "11264M"}},
		{"between the steps", []string{"1024M", "1000M", "1030M", "1040M"}, []string{"1024M", "960M", "960M", "1024M"}},
		{"percent", []string{"50%", "49%", "50%", "51%", "52%"}, []string{"50%", "45%", "45%", "45%", "50%"}},
		{"another unit", []string{"10240M", "10G"}, []string{"10240M", "10G"}},
	} {
		shown := ""
		for i, v := range tt.values {
			if shown = rounded("mem_free", v, shown); shown != tt.want[i] {
				t.Errorf("%s: %v told as %s, want %s", tt.name, tt.values[:i+1], shown, tt.want[i])
			}
		}
	}
	// One that was told under another rule is no anchor.
	if got := rounded("mem_free", "5000M", "4999M"); got != "4096M" {
		t.Errorf("told as %s", got)
	}
}

func FuzzRoundedNeverPromisesMore(f *testing.F) {
	f.Add("17000M", "16384M")
	f.Add("4%", "5%")
	f.Fuzz(func(t *testing.T, value, shown string) {
		was, ok := parseAmount("mem_free", value)
		if !ok {
			return
		}
		got := rounded("mem_free", value, shown)
		now, ok := parseAmount("x_free_bytes", got)
		if !ok || now.n > was.n {
			t.Errorf("%q (told before as %q) is told as %q", value, shown, got)
		}
	})
}
