package sim

import (
	"fmt"
	"slices"
	"time"

	"rcd/fsm/command"
	"rcd/model"
	rc "rcd/session"
	"rcd/wire"
)

// news is something that a host says again and again until it is acked, one
// thing at a time: declared labels and faults. It is on disk.
type news struct {
	device  string // name
	fault   bool
	version int
	told    int // the highest version that was acked
}

// ceilings are few, so that runtimes come to lie at them.
var ceilings = []int64{0, 0, 0, 20, 30, 45, 60}

// addDevice adds a device as its configuration has it.
func (h *host) addDevice() {
	d := wire.AgentDevice{Name: fmt.Sprintf("gpu%d", len(h.devices)), MaxRuntimeS: ceilings[h.w.rng.IntN(len(ceilings))]}
	h.devices = append(h.devices, d)
	h.free[d.Name] = 80 << 10
	h.relabelOne(len(h.devices) - 1)
	h.detect(len(h.devices) - 1)
	h.news = append(h.news, &news{device: d.Name})
}

// reconfigure changes what the next agent process will say of the host.
func (h *host) reconfigure() {
	rng := h.w.rng
	if rng.IntN(4) == 0 {
		h.relabel()
	}
	if rng.IntN(5) == 0 {
		h.devices[rng.IntN(len(h.devices))].MaxRuntimeS = ceilings[rng.IntN(len(ceilings))]
	}
	if rng.IntN(8) == 0 && len(h.devices) < 4 {
		h.addDevice()
		h.w.counts.DevicesAdded++
	}
	if rng.IntN(10) == 0 {
		h.manual = !h.manual
	}
	h.leftOut = ""
	if rng.IntN(5) == 0 && len(h.devices) > 1 {
		h.leftOut = h.devices[rng.IntN(len(h.devices))].Name
		h.w.counts.DevicesLeftOut++
	}
}

// relabel draws new labels, as after a change of hardware or configuration.
func (h *host) relabel() {
	for i := range h.devices {
		h.relabelOne(i)
	}
}

func (h *host) relabelOne(i int) {
	h.devices[i].Declared = []wire.LabelKV{
		{Key: "gpu", Value: []string{"a", "b"}[h.w.rng.IntN(2)]},
		{Key: "vram", Value: []string{"16G", "40G", "80G"}[h.w.rng.IntN(3)]},
	}
	if h.w.rng.IntN(3) == 0 {
		h.devices[i].Declared = append(h.devices[i].Declared, wire.LabelKV{Key: "link", Value: "fast"})
	}
}

// detect makes the labels of a probe, with what changes all the time rounded,
// and reports whether they are new.
func (h *host) detect(i int) bool {
	d := &h.devices[i]
	labels := []wire.LabelKV{
		{Key: "driver", Value: []string{"550.90.07", "580.173.02"}[h.machine%2]},
		{Key: "vram_free", Value: fmt.Sprintf("%dG", h.free[d.Name]>>10)},
	}
	changed := !slices.Equal(labels, d.Detected)
	d.Detected = labels
	return changed
}

// fresh is what a new agent process knows: its registration says what is
// declared, and what is detected if its first probe works.
func (h *host) fresh() {
	fails := h.w.chance(10)
	for i := range h.devices {
		h.devices[i].KeepDetected = fails
	}
	for _, n := range h.news {
		if !n.fault {
			n.told = n.version
		}
	}
}

// probe looks at the devices now and then, while there is somebody to use them.
func (h *host) probe(instance string) {
	if !h.running(instance) || h.w.calm {
		return
	}
	h.w.after(h.w.between(10*time.Second, 40*time.Second), func() { h.probe(instance) })
	for i := range h.devices {
		h.devices[i].KeepDetected = false // it works now
	}
	i := h.w.rng.IntN(len(h.devices))
	d := &h.devices[i]
	raw := []int64{8, 24, 80}[h.w.rng.IntN(3)]<<10 + h.w.rng.Int64N(1024)
	if h.w.rng.IntN(2) == 0 { // some more or less within the same GiB
		raw = h.free[d.Name]&^1023 + h.w.rng.Int64N(1024)
	}
	if raw == h.free[d.Name] {
		return
	}
	h.free[d.Name] = raw
	if !h.detect(i) {
		h.w.counts.Rounded++
		return
	}
	h.tellFacts()
}

// rest is a host that nobody uses any more.
func (h *host) rest() {
	for i := range h.devices {
		h.free[h.devices[i].Name] = 80 << 10
		h.devices[i].KeepDetected = false
		h.detect(i)
	}
}

// redeclare marks that the declared labels of a device are new.
func (h *host) redeclare(device string) {
	for _, n := range h.news {
		if n.device == device && !n.fault {
			n.version++
		}
	}
}

// fault makes the host find one of its devices unfit.
func (h *host) fault(device string) {
	h.w.note("%s finds %s unfit", h.name, device)
	h.news = append(h.news, &news{device: device, fault: true, version: 1})
}

// tellNews says the first thing that no leader has acked.
func (h *host) tellNews() {
	s := h.session
	if s == nil {
		return
	}
	for _, n := range h.news {
		if n.version == n.told || n.device == h.leftOut {
			continue
		}
		h.newsSeq++
		body, seq, version := h.newsBody(n), h.newsSeq, n.version
		h.w.send(h, s.e.n, false, func() {
			s.receive(func() { s.takeNews(seq, body, func() { h.newsAcked(s, n, version) }) })
		})
		return
	}
}

func (h *host) newsAcked(s *session, n *news, version int) {
	if h.running(s.instance) {
		n.told = max(n.told, version)
	}
}

func (h *host) newsBody(n *news) any {
	if n.fault {
		return &command.DeviceFault{Device: model.DeviceID(h.name, n.device), Instance: h.instance(), Detail: "fell off the bus"}
	}
	return &command.LabelsReplace{Host: h.name, Instance: h.instance(), Source: model.Declared,
		Sets: []command.DeviceLabels{{Name: n.device, Labels: rc.KeyValues(h.device(n.device).Declared)}}}
}

// sheetText is the usage sheet of a device, or of the host; some have none.
func (h *host) sheetText(device string) string {
	if h.sheet == 0 || (h.sheet+len(device))%3 == 0 {
		return ""
	}
	return fmt.Sprintf("how to use %s:%s, edition %d", h.name, device, h.sheet)
}

func (h *host) device(name string) *wire.AgentDevice {
	for i := range h.devices {
		if h.devices[i].Name == name {
			return &h.devices[i]
		}
	}
	return nil
}
