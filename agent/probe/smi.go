package probe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// SMI is what nvidia-smi says: less than NVML, and of the driver as a whole
// only. All methods may be called concurrently.
type SMI struct {
	path  string // of the executable, or its name
	sys   string // where sysfs is
	lanes lanes
}

var _ Library = (*SMI)(nil)

// NewSMI looks through the nvidia-smi of the PATH. It does nothing before it is
// first asked.
func NewSMI() *SMI { return &SMI{path: "nvidia-smi", sys: sysfs} }

// smiFields are what is asked for. Those after smiBase are not known to every
// release, which then refuses the whole question. The name comes last, because
// it may hold a comma and nothing is quoted.
var smiFields = []string{
	"index", "uuid", "pci.bus_id", "driver_version", "memory.total", "memory.free",
	"compute_cap", "ecc.mode.current", "power.limit", "mig.mode.current",
	"name",
}

const smiBase = 6

// GPUs implements Library.
func (s *SMI) GPUs(ctx context.Context) ([]GPU, error) {
	fields := smiFields
	text, err := s.query(ctx, fields)
	if err != nil && bytes.Contains(text, []byte("not a valid field")) {
		fields = append(slices.Clone(smiFields[:smiBase]), "name")
		text, err = s.query(ctx, fields)
	}
	if err != nil && !bytes.Contains(text, []byte("GPU-")) && !lostAddress.Match(text) {
		if bytes.Contains(text, []byte("No devices were found")) {
			return nil, nil
		}
		return nil, err
	}
	gpus := parseSMI(string(text), fields)
	var cuda string
	if text, err := s.run(ctx, "--version"); err == nil {
		cuda = parseCUDA(string(text))
	}
	var parts map[string][]Instance
	if slices.ContainsFunc(gpus, func(g GPU) bool { return g.MIG }) {
		text, err := s.run(ctx, "-L")
		if err != nil {
			return nil, err
		}
		parts = parseInstances(string(text))
	}
	for i := range gpus {
		g := &gpus[i]
		if node, ok := numaNode(s.sys, g.PCI); ok && g.Err == nil {
			g.Facts[factNUMA] = node
		}
		if cuda != "" && g.Err == nil {
			g.Facts[factCUDA] = cuda
		}
		for _, part := range parts[g.UUID] {
			facts := g.Facts.ofInstance()
			facts[factUUID], facts[factProfile] = part.UUID, part.Facts[factProfile]
			g.Instances = append(g.Instances, Instance{UUID: part.UUID, Facts: facts})
		}
	}
	sortByPCI(gpus)
	return gpus, nil
}

func (s *SMI) query(ctx context.Context, fields []string) ([]byte, error) {
	return s.run(ctx, "--query-gpu="+strings.Join(fields, ","), "--format=csv,noheader,nounits")
}

// smiOutput bounds what is read of nvidia-smi.
const smiOutput = 1 << 20

// run returns what nvidia-smi prints, also with an error. One that cannot even
// be killed holds its lane.
func (s *SMI) run(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type result struct {
		text []byte
		err  error
	}
	r, err := in(ctx, &s.lanes, "nvidia-smi", func() (result, error) {
		var out limited
		c := exec.CommandContext(ctx, s.path, args...)
		c.Stdout, c.Stderr = &out, &out
		c.Env = append(os.Environ(), "LC_ALL=C")
		c.WaitDelay = time.Second
		err := c.Run()
		return result{out.Bytes(), err}, nil
	})
	if err == nil {
		err = r.err
	}
	switch exit := (*exec.ExitError)(nil); {
	case err == nil, errors.Is(err, ErrHung):
		return r.text, err
	case ctx.Err() != nil:
		return r.text, fmt.Errorf("nvidia-smi: %w within %v", ErrHung, patience)
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("%w: there is no nvidia-smi", ErrAbsent)
	case errors.As(err, &exit) && exit.ExitCode() == smiNoDriver:
		return r.text, fmt.Errorf("%w: nvidia-smi does not reach it", ErrAbsent)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(r.text)), "\n")
	return r.text, fmt.Errorf("nvidia-smi %s: %w: %s", args[0], err, line)
}

// smiNoDriver is how nvidia-smi exits when the driver is not loaded, as its
// manual page has it.
const smiNoDriver = 9

// limited keeps the beginning of what is written.
type limited struct{ bytes.Buffer }

func (l *limited) Write(p []byte) (int, error) {
	if room := smiOutput - l.Len(); room > 0 {
		_, _ = l.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
