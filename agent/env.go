package agent

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"rcd/agent/proc"
	"rcd/model"
	"rcd/wire"
)

// errReservedEnv says that a submitter's environment names what must never
// reach a job.
var errReservedEnv = errors.New("environment name is reserved")

// defaultPath is the PATH of jobs when the agent has none.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// defaultTerm is what a job on a terminal is told of it when the submitter says
// nothing: what most terminals today understand.
const defaultTerm = "xterm-256color"

// deviceEnv is the variable from which a restarted agent also learns which
// devices a job has: device IDs, a comma between two.
const deviceEnv = "RC_DEVICE"

// environment returns all that a job sees, sorted: a base that does not depend
// on how the agent was started, except for PATH, LANG and TMPDIR, then the
// submitter's, then ours. Credentials and settings of rc stand in the agent's
// environment, so nothing else is taken from there.
func (a *agent) environment(j *job, start wire.StartJob) ([]string, error) {
	env := baseEnvironment()
	for name, value := range start.Env {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00"):
			return nil, fmt.Errorf("%q is no environment variable; rename it", name)
		case strings.HasPrefix(name, "RC_TOKEN"), strings.HasPrefix(name, "RCD_"):
			return nil, fmt.Errorf("%w: %s; submit the job without it", errReservedEnv, name)
		}
		env[name] = value
	}
	for name, value := range a.gpus.cuda(j.devices) {
		if _, own := start.Env[name]; !own {
			env[name] = value
		}
	}
	if text := start.Env[model.GraceSignalEnv]; text != "" {
		if _, err := model.ParseGraceSignal(text); err != nil {
			return nil, fmt.Errorf("%s: %w", model.GraceSignalEnv, err)
		}
	}
	if _, err := model.DetachTimeout(start.Env[model.DetachTimeoutEnv]); err != nil {
		return nil, fmt.Errorf("%s: %w", model.DetachTimeoutEnv, err)
	}
	if model.Stdio(start.Stdio) == model.StdioTTY && env["TERM"] == "" {
		env["TERM"] = defaultTerm
	}
	env[proc.JobIDName] = model.JobID(j.job)
	env[deviceEnv] = strings.Join(slices.Sorted(slices.Values(start.Devices)), ",")
	delete(env, holdEnv)
	if j.hold != 0 {
		env[holdEnv] = model.JobID(j.hold)
	}
	env["RC_LEASE_TOKEN"] = strconv.FormatUint(j.lease, 10)
	env["RC_SUBMITTER"] = start.Submitter
	out := make([]string, 0, len(env))
	for _, name := range slices.Sorted(maps.Keys(env)) {
		out = append(out, name+"="+env[name])
	}
	return out, nil
}

func baseEnvironment() map[string]string {
	env := map[string]string{"PATH": defaultPath, "LANG": "C.UTF-8", "SHELL": "/bin/sh", "HOME": homeDir()}
	for _, name := range []string{"PATH", "LANG", "TMPDIR"} {
		if v := os.Getenv(name); v != "" {
			env[name] = v
		}
	}
	if u, err := user.Current(); err == nil {
		env["USER"], env["LOGNAME"] = u.Username, u.Username
	}
	return env
}

// homeDir is where jobs start that say no directory.
func homeDir() string {
	if u, err := user.Current(); err == nil {
		if info, err := os.Stat(u.HomeDir); err == nil && info.IsDir() {
			return u.HomeDir
		}
	}
	return "/"
}

// devicesIn returns the device names in a job's environment.
func devicesIn(env []string) []string {
	for _, entry := range env {
		ids, ok := strings.CutPrefix(entry, deviceEnv+"=")
		if !ok {
			continue
		}
		var names []string
		for id := range strings.SplitSeq(ids, ",") {
			if _, name := model.SplitDeviceID(id); name != "" {
				names = append(names, name)
			}
		}
		return names
	}
	return nil
}
