package probe

import (
	"slices"
	"testing"
)

func TestEachXIDStandsInTheTableOnce(t *testing.T) {
	all := Table()
	for i, x := range all {
		if i > 0 && all[i-1].Number >= x.Number {
			t.Errorf("%d comes after %d", x.Number, all[i-1].Number)
		}
		if x.Text == "" || !x.Known || !slices.Contains([]Meaning{MeansDevice, MeansJob, MeansIgnore}, x.Meaning) {
			t.Errorf("%+v", x)
		}
		if got := LookUp(x.Number, nil); got != x {
			t.Errorf("looked up %+v, want %+v", got, x)
		}
	}
}

func TestTheSiteHasTheLastWordOnAnXID(t *testing.T) {
	site := map[uint64]Meaning{31: MeansDevice, 79: MeansIgnore, 4711: MeansDevice}
	for number, want := range map[uint64]Meaning{
		13: MeansJob, 43: MeansJob, 45: MeansJob, 94: MeansJob, 63: MeansIgnore, 64: MeansDevice, 48: MeansDevice, 74: MeansDevice,
		95: MeansDevice, 119: MeansDevice, 140: MeansDevice,
		31: MeansDevice, 79: MeansIgnore, 4711: MeansDevice,
		0: MeansJob, 999: MeansJob, 1 << 63: MeansJob, // in nobody's table
	} {
		if x := LookUp(number, site); x.Meaning != want || x.Number != number || x.Text == "" {
			t.Errorf("%+v, want %s", x, want)
		}
	}
	if x := LookUp(4711, site); x.Known || x.String() != "XID 4711 (not in the table of this release; see NVIDIA's Xid catalog)" {
		t.Errorf("%+v %s", x, x)
	}
}
