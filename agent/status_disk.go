package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"rcd/agent/proc"
	"rcd/agent/shim"
	"rcd/model"
	"rcd/wire"
)

// StatusOf returns how the agent of a configuration does. Without one that runs
// it tells, with PID 0, of the jobs that have a shim, and of a drain. An error
// wraps ErrLocked while an agent starts, or hangs.
func StatusOf(ctx context.Context, config Config) (Status, error) {
	status, _, err := statusOf(ctx, config)
	return status, err
}

// statusOf is StatusOf, and says whether there is an agent.
func statusOf(ctx context.Context, config Config) (status Status, online bool, err error) {
	if _, err := os.Stat(config.DataDir); errors.Is(err, os.ErrNotExist) {
		return offlineStatus(config, nil), false, nil
	}
	answer, err := ask(ctx, config.DataDir, controlRequest{Do: doStatus})
	if err == nil {
		return *answer.Status, true, nil
	}
	if !errors.Is(err, errNoAgent) {
		return offlineStatus(config, nil), true, err
	}
	if id, alive := proc.ReadPIDFile(filepath.Join(config.DataDir, pidFile)); alive {
		return offlineStatus(config, nil), true, fmt.Errorf("%w: process %d has data directory %s and does not answer yet", ErrLocked, id.PID, config.DataDir)
	}
	drain, err := readDrain(config.DataDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return offlineStatus(config, nil), false, err
	}
	status = offlineStatus(config, drain)
	if status.Jobs, err = shimJobs(config.DataDir); err != nil {
		return offlineStatus(config, drain), false, err
	}
	return status, false, nil
}

// offlineStatus is what the configuration and the disk say without an agent.
func offlineStatus(config Config, drain *drainState) Status {
	s := Status{Host: config.Host, Devices: []StatusDevice{}, Jobs: []StatusJob{}}
	s.addDrain(drain, declaredNames(config))
	return s
}

func declaredNames(config Config) []string {
	var names []string
	for _, d := range config.Devices {
		names = append(names, d.Name)
	}
	return names
}

// shimJobs lists the jobs of a data directory whose shim runs, by job and
// lease.
func shimJobs(dataDir string) ([]StatusJob, error) {
	all, err := shims()
	if err != nil {
		return nil, err
	}
	s := Status{Jobs: []StatusJob{}}
	for dir := range all {
		k, ok := parseKey(filepath.Base(dir))
		if !ok || filepath.Dir(dir) != filepath.Join(dataDir, jobsDir) {
			continue
		}
		j := StatusJob{Job: model.JobID(k.job), Lease: model.LeaseID(k.lease), Phase: phaseName(wire.PhaseRunning), Since: begunAt(dir)}
		if spec, err := shim.Load(dir); err == nil {
			j.Devices = devicesIn(spec.Env)
			if hold := holdIn(spec.Env); hold != 0 {
				j.Hold = model.JobID(hold)
			}
		}
		s.Jobs = append(s.Jobs, j)
	}
	s.sortJobs()
	return s.Jobs, nil
}

// begunAt is when a job was handed to its shim, zero if that is not known.
func begunAt(dir string) time.Time {
	info, err := os.Stat(filepath.Join(dir, "spec.cbor"))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
