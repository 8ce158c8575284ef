package shim

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"rcd/agent/proc"
	"rcd/agent/spool"
	"rcd/agent/witness"
)

// Errors of a spec. They wrap what is wrong; nothing was started.
var (
	// ErrSpec says that the spec cannot be run as it stands.
	ErrSpec = errors.New("bad job spec")
	// ErrForbiddenEnv says that the environment holds a credential or a setting of ours, which must never reach a job.
	ErrForbiddenEnv = errors.New("environment must not reach a job")
)

// Kind says what is run.
type Kind string

// The kinds of a job. Texts are on disk.
const (
	KindJob  Kind = "job"  // a command
	KindHold Kind = "hold" // nothing: the lease is held until it is killed or its time is over
)

// Stdio says how the job is connected. Texts are on disk.
type Stdio string

// The kinds of connection. The output of each goes to the spool; that of a terminal or a pipe waits there for a reader, and the job with it.
const (
	StdioLog  Stdio = ""     // stdin is /dev/null
	StdioTTY  Stdio = "tty"  // all three streams are a terminal, the job's controlling one; its output is stdout
	StdioPipe Stdio = "pipe" // stdin is a pipe
)

// DefaultGrace is what a killed job gets between SIGTERM and SIGKILL.
const DefaultGrace = 10 * time.Second

// markName is the environment variable by which a job's processes are told from those of a job with the same number elsewhere.
const markName = "RC_JOB_MARK"

// Spec is a job as the agent orders it. It is written down before anything runs and never changes.
type Spec struct {
	JobID   string   `cbor:"1,keyasint"`
	Lease   uint64   `cbor:"2,keyasint"` // fencing token; kept for the agent's own use
	Kind    Kind     `cbor:"3,keyasint"`
	Command []string `cbor:"4,keyasint"` // looked up in the PATH of Env; a hold runs none
	Cwd     string   `cbor:"5,keyasint"` // absolute; empty for /

	// Env is the complete environment, NAME=VALUE. It must say RC_JOB_ID=JobID. The shim adds RC_JOB_MARK and nothing else.
	Env []string `cbor:"6,keyasint"`

	MaxRuntime  time.Duration `cbor:"7,keyasint"` // 0: no limit
	IdleTimeout time.Duration `cbor:"8,keyasint"` // 0: no limit; not for holds
	Grace       time.Duration `cbor:"9,keyasint"` // 0: DefaultGrace
	Stdio       Stdio         `cbor:"10,keyasint"`
	OutputBound int64         `cbor:"11,keyasint"` // bytes on disk; 0: spool.DefaultBound

	// Witness: the job's simulated devices. Only set where there are some, since a shim of an earlier release refuses it.
	Witness *witness.Place `cbor:"12,keyasint,omitempty"`
}

// withDefaults returns the spec with what was left out filled in.
func (s Spec) withDefaults() Spec {
	if s.Kind == "" {
		s.Kind = KindJob
	}
	if s.Cwd == "" {
		s.Cwd = "/"
	}
	if s.Grace == 0 {
		s.Grace = DefaultGrace
	}
	if s.OutputBound == 0 {
		s.OutputBound = spool.DefaultBound
	}
	return s
}

// check refuses what the shim could not run as meant.
func (s Spec) check() error {
	switch {
	case s.JobID == "":
		return fmt.Errorf("%w: no job id", ErrSpec)
	case s.Kind != KindJob && s.Kind != KindHold:
		return fmt.Errorf("%w: kind %q", ErrSpec, s.Kind)
	case s.Kind == KindJob && (len(s.Command) == 0 || s.Command[0] == ""):
		return fmt.Errorf("%w: no command", ErrSpec)
	case s.Stdio != StdioLog && s.Stdio != StdioTTY && s.Stdio != StdioPipe:
		return fmt.Errorf("%w: stdio %q needs a later version", ErrSpec, s.Stdio)
	case s.Stdio != StdioLog && s.Kind == KindHold:
		return fmt.Errorf("%w: a hold with stdio %q", ErrSpec, s.Stdio)
	case s.MaxRuntime < 0 || s.IdleTimeout < 0 || s.Grace < 0:
		return fmt.Errorf("%w: a duration is negative", ErrSpec)
	case s.OutputBound < spool.MinBound:
		return fmt.Errorf("%w: output bound of %d bytes is below %d", ErrSpec, s.OutputBound, spool.MinBound)
	case !filepath.IsAbs(s.Cwd):
		return fmt.Errorf("%w: working directory %q is not absolute", ErrSpec, s.Cwd)
	}
	if s.Witness != nil {
		if err := s.Witness.Check(); err != nil {
			return fmt.Errorf("%w: %w", ErrSpec, err)
		}
	}
	for _, text := range slices.Concat([]string{s.JobID, s.Cwd}, s.Command, s.Env) {
		// The record is strict CBOR, and the kernel ends an argument at a NUL.
		if strings.ContainsRune(text, 0) || !utf8.ValidString(text) {
			return fmt.Errorf("%w: %.40q is not plain text", ErrSpec, text)
		}
	}
	return s.checkEnv()
}

func (s Spec) checkEnv() error {
	named := false
	for _, entry := range s.Env {
		name, value, ok := strings.Cut(entry, "=")
		switch {
		case !ok || name == "":
			return fmt.Errorf("%w: environment entry %.40q has no name and value", ErrSpec, entry)
		case strings.HasPrefix(name, "RC_TOKEN"), strings.HasPrefix(name, "RCD_"):
			return fmt.Errorf("%w: %s", ErrForbiddenEnv, name)
		case name == markName:
			return fmt.Errorf("%w: environment sets %s, which is ours; submit the job without it", ErrSpec, markName)
		case name == proc.JobIDName:
			if value != s.JobID {
				return fmt.Errorf("%w: environment says %s, the job is %s", ErrSpec, entry, s.JobID)
			}
			named = true
		}
	}
	if !named && s.Kind == KindJob {
		return fmt.Errorf("%w: environment lacks %s=%s", ErrSpec, proc.JobIDName, s.JobID)
	}
	return nil
}

// marks are what every process of the job carries in its environment, unless it took pains to lose it.
func (o order) marks() []string {
	return []string{proc.JobIDName + "=" + o.Spec.JobID, markName + "=" + o.Mark}
}
