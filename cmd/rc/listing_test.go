package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"rcd/wire"
)

// TestALongReasonStaysOutOfTheOtherColumnsWay: people see that there is more of
// it, and other formats have all of it.
func TestALongReasonStaysOutOfTheOtherColumnsWay(t *testing.T) {
	long := "not ended: 4711 (python \x1b[31m), " + strings.Repeat("4712 (python), ", 20)
	job := wire.Job{ID: "j-1", DeviceID: "box:gpu0", State: "killed", KillReason: long, Submitter: "ann", Command: []string{"train"}}
	device := wire.DeviceView{Device: wire.Device{ID: "box:gpu0", State: "unhealthy"}, QuarantineCategory: "fault", QuarantineReason: long,
		Holder: "ann", Reason: long, HeartbeatAgeSeconds: 300, Command: []string{"train"}}
	for name, print := range map[string]func(w *bytes.Buffer, output string) error{
		"jobs": func(w *bytes.Buffer, output string) error {
			return jobListing(time.Now()).print(w, output, []wire.Job{job}, nil)
		},
		"devices": func(w *bytes.Buffer, output string) error {
			return deviceListing.print(w, output, []wire.DeviceView{device}, nil)
		},
	} {
		for _, output := range []string{formatTable, formatWide, formatJSON} {
			var out bytes.Buffer
			if err := print(&out, output); err != nil {
				t.Fatal(err)
			}
			widest := 0
			for line := range strings.Lines(out.String()) {
				widest = max(widest, utf8.RuneCountInString(line))
			}
			all := strings.Contains(out.String(), "4712 (python), 4712 (python), 4712")
			if short := output == formatTable; short && (all || widest > 160 || !strings.Contains(out.String(), "…)  ") || !strings.Contains(out.String(), "train")) || !short && !all {
				t.Errorf("%s -o %s is %d wide:\n%s", name, output, widest, out.String())
			}
			if name == "devices" && output != formatJSON && !strings.Contains(out.String(), "no contact 5m") {
				t.Errorf("the silence is cut off with the reason:\n%s", out.String())
			}
		}
	}
}
