package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

const (
	unitsDir  = "../../scripts/systemd"
	installed = "/usr/local/bin/rcd"
)

// unit returns the settings of a unit, key=value, without comments.
func unit(t *testing.T, name string) (text string, settings []string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(unitsDir, name))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			settings = append(settings, line)
		}
	}
	return string(data), settings
}

func TestSystemdTakesTheUnits(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed: install the package systemd to check the units")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(unitsDir, "*.service"))
	if err != nil || len(names) != 2 {
		t.Fatal(names, err)
	}
	verify := func(name, text string) (string, error) {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(analyze, "verify", path).CombinedOutput()
		return string(out), err
	}
	for _, name := range names {
		name = filepath.Base(name)
		text, _ := unit(t, name)
		// It looks for the program as well, which no test installs.
		text = strings.ReplaceAll(text, installed, self)
		if out, err := verify(name, text); err != nil || out != "" {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		if out, err := verify(name, strings.Replace(text, "Restart=always", "Restart=sometimes", 1)); err == nil && out == "" {
			t.Errorf("%s: a mistake goes unseen, so this test says nothing", name)
		}
	}
}

func TestTheUnitsStartWhatThereIs(t *testing.T) {
	t.Setenv("RCD_SERVE_ARGS", "--id c1 --listen 10.0.0.1:7401 --http 10.0.0.1:8080 --bootstrap-expect 3 --join c1=10.0.0.1:7401,c2=10.0.0.2:7401,c3=10.0.0.3:7401")
	for name, want := range map[string]string{"rcd-agent.service": agentRun, "rcd-serve.service": "serve"} {
		_, settings := unit(t, name)
		i := slices.IndexFunc(settings, func(s string) bool { return strings.HasPrefix(s, "ExecStart=") })
		argv := strings.Fields(os.ExpandEnv(strings.TrimPrefix(settings[i], "ExecStart=")))
		if argv[0] != installed {
			t.Errorf("%s starts %s", name, argv[0])
		}
		parser, err := kong.New(&cli{}, kong.Name("rcd"), kong.Exit(func(int) { t.Error("it ends at once") }))
		if err != nil {
			t.Fatal(err)
		}
		if parsed, err := parser.Parse(argv[1:]); err != nil || parsed.Command() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTheAgentsUnitSparesTheJobs: with any of these lines lost, a restart of the
// agent, a job out of memory or a large job would cost other jobs.
func TestTheAgentsUnitSparesTheJobs(t *testing.T) {
	_, settings := unit(t, "rcd-agent.service")
	for _, want := range []string{"Type=notify", "KillMode=process", "Delegate=yes", "OOMPolicy=continue", "TasksMax=infinity", "Restart=always", "ExecReload=/bin/kill -HUP $MAINPID"} {
		if !slices.Contains(settings, want) {
			t.Errorf("the unit lacks %s", want)
		}
	}
	for _, sandbox := range []string{"Protect", "Private", "Restrict", "NoNewPrivileges", "User=", "DynamicUser", "Memory", "CPU", "SystemCall", "Capability", "ReadOnly", "Inaccessible", "Root"} {
		if i := slices.IndexFunc(settings, func(s string) bool { return strings.HasPrefix(s, sandbox) }); i >= 0 {
			t.Errorf("%s would reach the jobs", settings[i])
		}
	}
}
