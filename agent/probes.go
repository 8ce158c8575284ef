package agent

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"time"

	"rcd/agent/probe"
)

const (
	// probesFile keeps what each probe said last: one that fails after a restart
	// must not take away what the cluster has.
	probesFile = "probes.cbor"
	kindProbes = 20

	// probesSlack is what a pass over the probes may take beyond its own limit:
	// to end what has not ended by itself.
	probesSlack = 15 * time.Second
)

// probesRecord is what the probes said last, by file name.
type probesRecord struct {
	Words map[string]probe.Word `cbor:"1,keyasint"`
}

// probesSource detects what the executables of probe_dir say. done returns once
// no probe runs that can be ended; it is for the time after ctx has ended.
func (a *agent) probesSource() (source Source, done func()) {
	path := filepath.Join(a.config.DataDir, probesFile)
	var kept probesRecord
	if err := readRecord(path, kindProbes, &kept); err != nil && !errors.Is(err, os.ErrNotExist) {
		a.log.Warn("what probes said last is lost; a probe that fails now has no labels", "error", err)
	}
	d := &probe.Dropins{Run: runProbe, Log: a.log, Words: kept.Words}
	for _, device := range a.config.Devices {
		d.Devices = append(d.Devices, device.Name)
	}
	pass := make(chan struct{}, 1) // held while one is under way
	detect := func(ctx context.Context) (Labels, error) {
		pass <- struct{}{}
		defer func() { <-pass }()
		d.Dir, d.Timeout = a.settings().Probes.Dir, a.settings().Probes.Timeout
		labels, err := d.Pass(ctx)
		if err != nil {
			return nil, err
		}
		if !maps.EqualFunc(d.Words, kept.Words, maps.Equal[probe.Word, probe.Word]) {
			kept.Words = d.Words
			if err := writeRecord(path, kindProbes, kept); err != nil {
				a.log.Warn("what probes say is not kept for a restart", "error", err)
			}
		}
		return labels, nil
	}
	done = func() {
		select {
		case pass <- struct{}{}:
		case <-time.After(probesSlack): // it waits for the disk, and is left behind
		}
	}
	return Source{
		Name: "probe_dir", Every: a.settings().Probes.Interval, Timeout: probe.PassLimit + probesSlack, Last: d.Labels(), Detect: detect,
	}, done
}
