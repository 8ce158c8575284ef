package agent

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/wire"
)

// damages are what may happen to a file.
var damages = map[string]func(path string, data []byte) error{
	"emptied":     func(path string, _ []byte) error { return os.WriteFile(path, nil, 0o600) },
	"cut in half": func(path string, data []byte) error { return os.WriteFile(path, data[:len(data)/2], 0o600) },
	"one bit flipped": func(path string, data []byte) error {
		if len(data) > 0 {
			data[len(data)/2] ^= 4
		}
		return os.WriteFile(path, data, 0o600)
	},
	"not to be read": func(path string, _ []byte) error { // as a bad block is, also for root
		if err := os.Remove(path); err != nil {
			return err
		}
		return os.Mkdir(path, 0o700)
	},
}

func damage(t *testing.T, how, path string) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err == nil {
		err = damages[how](path, data)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A case of damage, and the job that it befalls.
type damaged struct {
	job  uint64
	file string // below the job's directory
	how  string
}

func (d damaged) path(dir string) string {
	return filepath.Join(dir, jobsDir, fmt.Sprintf("%d-%d", d.job, d.job), d.file)
}

func (d damaged) String() string { return fmt.Sprintf("job %d: %s %s", d.job, d.file, d.how) }

// check compares an outcome with what may be said after the damage.
func (d damaged) check(t *testing.T, dir string, o wire.Outcome) {
	t.Helper()
	if slices.Contains([]string{"spec.cbor", "result.cbor", "outcome.cbor"}, d.file) {
		if o.End != uint8(command.EndSupervisorDied) || o.ExitCode != nil || !strings.Contains(o.Survivors, d.path(dir)) || !strings.Contains(o.Reason, d.path(dir)) {
			t.Errorf("%v: not said to be lost with the name of the file: %+v", d, o)
		}
		return
	}
	if o.End != uint8(command.EndExited) || o.ExitCode == nil || *o.ExitCode != 3 || o.Survivors != "" || o.OutputLength != 4 {
		t.Errorf("%v: the outcome does not rest on this file, and changed: %+v", d, o)
	}
}

// filesOf lists what is in a job's directory, however deep, but for the room that
// is kept for its end and given back just after it.
func filesOf(t *testing.T, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && filepath.Ext(path) != ".room" {
			files = append(files, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil || len(files) < 5 {
		t.Fatalf("files of a job: %v (%v)", files, err)
	}
	return files
}

// TestADamagedFileOfAnEndedJobIsNamedAndStopsNothing damages each file of an
// ended job's directory in each way, a job for each, while no agent is there.
func TestADamagedFileOfAnEndedJobIsNamedAndStopsNothing(t *testing.T) {
	for _, checked := range []bool{false, true} { // with checks, the agent keeps the outcome itself
		t.Run(fmt.Sprintf("checked=%v", checked), func(t *testing.T) {
			c := newControl(t)
			config := testConfig(dataDir(t), c)
			start := func() *running {
				return startAgentWith(t, config, func(d *Deps) {
					if checked {
						d.shaped = func(a *agent) {
							a.checks = []check{{name: "nothing", look: func(context.Context, *job, wire.Outcome) finding { return finding{} }}}
						}
					}
				})
			}
			last := "result.cbor"
			if checked {
				last = outcomeFile
			}
			run := func(n uint64) {
				c.want(n, nil, sh("echo out; exit 3")...)
				eventually(t, "job over", func() bool {
					_, err := os.Stat(damaged{n, last, ""}.path(config.DataDir))
					return err == nil
				})
			}
			c.deafen(true)
			first := start()
			run(1)
			var cases []damaged
			for _, file := range filesOf(t, damaged{1, "", ""}.path(config.DataDir)) {
				if checked && file != outcomeFile {
					continue
				}
				for how := range damages {
					cases = append(cases, damaged{uint64(len(cases) + 1), file, how})
				}
			}
			for _, d := range cases[1:] {
				run(d.job)
			}
			first.stop()
			for _, d := range cases {
				damage(t, d.how, d.path(config.DataDir))
			}

			c.deafen(false)
			start()
			for _, d := range cases {
				d.check(t, config.DataDir, c.outcome(t, d.job))
				if strings.HasPrefix(d.file, "out/") && d.how == "not to be read" {
					continue // the stream fails, and says so
				}
				if text, end := c.output(t, fmt.Sprintf("j-%d", d.job), 0, true); end.Complete && text != "out\n" && text != "[gap 0-4]" {
					t.Errorf("%v: output %q is called whole", d, text)
				}
			}
			c.want(1000, nil, sh("exit 3")...)
			if o := c.outcome(t, 1000); o.ExitCode == nil || *o.ExitCode != 3 {
				t.Errorf("the next job: %+v", o)
			}
		})
	}
}

// TestADamagedFileOfARunningJobCostsThatJobAtMost is the same for a job that
// runs: of two, the other is always adopted.
func TestADamagedFileOfARunningJobCostsThatJobAtMost(t *testing.T) {
	for _, file := range []string{"spec.cbor", "process.cbor", "limit.cbor", "lock", "sock"} {
		for how := range damages {
			if file == "sock" && how != "not to be read" {
				continue // it cannot be written to
			}
			t.Run(file+" "+how, func(t *testing.T) {
				c := newControl(t)
				config := testConfig(dataDir(t), c)
				first := startAgent(t, config)
				release := filepath.Join(t.TempDir(), "release")
				command := sh("echo out; until [ -e " + release + " ]; do sleep 0.01; done; exit 3")
				c.want(1, nil, command...)
				c.want(2, func(s *wire.StartJob) { s.Devices = []string{"box:gpu1"} }, command...)
				eventually(t, "both running", func() bool { return c.isRunning(1) && c.isRunning(2) })
				first.stop()
				d := damaged{1, file, how}
				if file == "sock" {
					if err := os.Remove(d.path(config.DataDir)); err != nil {
						t.Fatal(err)
					}
				} else {
					damage(t, how, d.path(config.DataDir))
				}
				startAgent(t, config)
				if file == "spec.cbor" || file == "process.cbor" {
					if o := c.outcome(t, 1); !strings.Contains(o.Survivors, d.path(config.DataDir)) || o.ExitCode != nil {
						t.Errorf("the damaged job: %+v", o)
					}
				}
				if err := os.WriteFile(release, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				if o := c.outcome(t, 1); file != "spec.cbor" && file != "process.cbor" && (o.ExitCode == nil || *o.ExitCode != 3 || o.OutputLength != 4) {
					t.Errorf("the damaged job: %+v", o)
				}
				if o := c.outcome(t, 2); o.ExitCode == nil || *o.ExitCode != 3 {
					t.Errorf("the other job: %+v", o)
				}
			})
		}
	}
}
