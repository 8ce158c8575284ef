package proc

import "testing"

func TestOnlyTheLastMountOnProcHidesProcesses(t *testing.T) {
	const (
		before = "22 28 0:21 / /sys rw,nosuid - sysfs sysfs rw,hidepid=2\n"
		plain  = "23 28 0:5 / /proc rw,nosuid shared:5 - proc proc rw\n"
		hides  = "24 28 0:5 / /proc rw,nosuid - proc proc rw,gid=27,hidepid=invisible\n"
		number = "24 28 0:5 / /proc rw,nosuid shared:5 master:1 - proc proc rw,hidepid=2\n"
		open   = "24 28 0:5 / /proc rw - proc proc rw,hidepid=off\n"
		closed = "24 28 0:5 / /proc rw - proc proc rw,hidepid=noaccess\n"
		other  = "25 28 0:6 / /mnt/proc rw - proc proc rw,hidepid=2\n"
	)
	for _, tt := range []struct {
		mounts string
		value  string
		group  int
	}{
		{"", "", 0}, {before + plain, "", 0}, {plain + hides, "invisible", 27}, {hides + plain + other, "", 0}, {number, "2", 0}, {closed, "noaccess", 0},
		{open, "", 0},
	} {
		if value, group := hidePID(tt.mounts); value != tt.value || group != tt.group {
			t.Errorf("%q, group %d, want %q, group %d, of\n%s", value, group, tt.value, tt.group, tt.mounts)
		}
	}
}

func TestACapabilityIsReadFromTheStatus(t *testing.T) {
	const head = "Name:\tx\nCapPrm:\tffffffffffffffff\n"
	for text, want := range map[string]bool{
		"CapEff:\t000001ffffffffff\n": true, "CapEff:\t0000000000080000\n": true, "CapEff:\t000001fffff7ffff\n": false, "CapEff:\t\n": false, "": false,
	} {
		if got := hasCapability([]byte(head+text+"CapBnd:\tffffffffffffffff\n"), capPtrace); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestAThreadOfTheKernelIsNobodysJob(t *testing.T) {
	kernel := []byte("2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 2 0 0 18446744073709551615 0 0 0")
	if p, err := parseStat(2, kernel); err != nil || !p.kernelThread() {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := readStat(1); err != nil || p.kernelThread() {
		t.Errorf("the first process: %+v, %v", p, err)
	}
}
