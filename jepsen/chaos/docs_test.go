package chaos

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// root is the top of the project.
const root = "../.."

// documents are what a reader copies commands from.
func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, pattern := range []string{"README.md", "DESIGN.md", "docs/*.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			all[filepath.Base(path)] = string(text)
		}
	}
	return all
}

var (
	fence  = regexp.MustCompile("(?ms)^```[a-z]*\n(.*?)^```")
	inline = regexp.MustCompile("`((?:rc|rcd) [^`]+)`")
	// program is how a line of a block begins when it is a command.
	program = regexp.MustCompile(`^(CGO_ENABLED=0 )?(rc|rcd|go|export|\./[a-z/]+) `)
)

// commands lists every command that a document shows, continued lines joined
// and comments dropped.
func commands(text string) []string {
	var list []string
	for _, block := range fence.FindAllStringSubmatch(text, -1) {
		joined := strings.ReplaceAll(block[1], "\\\n", " ")
		for _, line := range strings.Split(joined, "\n") {
			line, _, _ = strings.Cut(line, "  #")
			line = strings.Join(strings.Fields(line), " ")
			if program.MatchString(line+" ") && !strings.Contains(line, "─") {
				list = append(list, line)
			}
		}
	}
	for _, span := range inline.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		list = append(list, strings.Join(strings.Fields(span[1]), " "))
	}
	return list
}

// shownOnly are texts in code spans that name a thing and are no command to
// type.
var shownOnly = []string{"rcd shim", "rcd serve", "rcd agent"}

// terminalTest runs what needs a terminal.
const terminalTest = "TestATerminalIsLeftTakenOverAndEndedByTheRule"

// copyScript runs rc cp in each of its forms, on files that are there.
const copyScript = "cmd/rc: testdata/cp.txtar"

// insideTest works in holds.
const insideTest = "inside_test.go"

// elsewhere are commands that other tests run, and which.
var elsewhere = map[string]string{
	"./scripts/demo": "TestDemoRuns",
	"./scripts/test": "is what runs this test",
	"CGO_ENABLED=0 go build -o bin/ ./cmd/rc": "cmd/rc: TestRcIsOneStaticBinary",
	"go build -o bin/ ./cmd/rcd":              "TestMain builds both",
	"./bin/rcd dev":                           "TestDevNamesEveryProcessAndRestartsNone",
	"rcd dev":                                 "TestDevNamesEveryProcessAndRestartsNone",
	"rc logs -f j-48213":                      "cmd/rc: testdata/logs.txtar",
	"rc kill j-48213":                         "cmd/rc: testdata/run_interrupt.txtar",
	"rc run --tty":                            terminalTest,
	"rc run --tty -d box:gpu0":                terminalTest,
	"rc run --tty -d box:gpu0 --detach-timeout 2h -- python": terminalTest,
	"rc attach":                                     terminalTest,
	"rc attach --take-over":                         terminalTest,
	"rc attach j-48213":                             "cmd/rc: testdata/attach.txtar",
	"rc attach --take-over j-48213":                 terminalTest,
	"rc cp":                                         copyScript,
	"rc cp model.bin box:gpu0:/data/":               copyScript,
	"rc cp src/ box:gpu0:work/src":                  copyScript,
	"rc cp box:gpu0:work/out.log .":                 copyScript,
	"rc cp -q -o json box:gpu0:/data/run-7 results": copyScript,
	"rc hold --session":                             insideTest,
	"rc hold dev:gpu1 --ttl 1h --reason 'a look around' --detach":        insideTest,
	"rc exec dev:gpu1 -- nproc":                                          insideTest,
	"rc context use lab":                                                 "cmd/rc: testdata/contexts.txtar",
	"rc --context home devices":                                          "cmd/rc: testdata/contexts.txtar",
	"rc completion bash > ~/.local/share/bash-completion/completions/rc": "cmd/rc: testdata/completion_shells.txtar",
	"rc completion zsh > ~/.zfunc/_rc":                                   "cmd/rc: testdata/completion_shells.txtar",
	"rc completion fish > ~/.config/fish/completions/rc.fish":            "cmd/rc: testdata/completion_shells.txtar",
	"rc run -d box:gpu0 --no-wait -- python train.py":                    "cmd/rc: testdata/run_exit.txtar", // a device takes a moment to be free again
	"export RCD_CLUSTER_KEY=$(openssl rand -hex 32)":                     "any secret does: see ClusterKey",
	"export RC_TOKENS=s3cret:admin,ann:client,w0rker:worker":             "TestTheOperatorsGuideFormsACluster",
}

// jobsGuide is the document whose blocks are one script.
const jobsGuide = "jobs.md"

func TestEveryCommandOfTheDocsRuns(t *testing.T) {
	c := Start(t, bin, Options{Controllers: 3, Devices: 2})
	n := 0
	for name, text := range documents(t) {
		if name == jobsGuide {
			continue // TestTheGuideToJobsRuns: one command gives the ID for the next
		}
		for _, line := range commands(text) {
			n++
			if _, ok := elsewhere[line]; ok || slices.Contains(shownOnly, line) {
				continue
			}
			if strings.HasPrefix(line, "rcd serve ") || strings.HasPrefix(line, "rcd agent ") {
				continue // TestTheOperatorsGuideFormsACluster
			}
			c.runDocumented(name, line)
		}
	}
	if n < 10 {
		t.Errorf("only %d commands were found in the documents", n)
	}
}

// runDocumented runs one rc command as a shell would, with the words that stand
// for something of the reader's own replaced.
func (c *Cluster) runDocumented(document, line string) {
	c.t.Helper()
	words := strings.NewReplacer("python train.py", "true", "dev:gpu0", "box:gpu0", "rc logs -f …", "rc logs -f j-1").Replace(line)
	if words == "rc clear" {
		words = "rc clear --help" // no device is in quarantine here
	}
	if strings.HasSuffix(words, " --watch") {
		words = "timeout --preserve-status --signal INT 2 " + words + "; [ $? = 130 ]" // it goes on until Ctrl-C
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-c", words)
	cmd.WaitDelay = 5 * time.Second // the shell's child may hold the pipe
	cmd.Env = append(c.Env(AdminToken), "PATH="+filepath.Dir(bin.RC)+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Errorf("%s: %q: %v\n%s", document, line, err, out)
	}
}

// TestTheOperatorsGuideFormsACluster follows docs/operating.md to the letter,
// on loopback and temporary folders.
func TestTheOperatorsGuideFormsACluster(t *testing.T) {
	guide := documents(t)["operating.md"]
	dir := t.TempDir()
	addrs := freeAddrs(t, 6)
	place := func(text, node string) string {
		for i := range 3 {
			text = strings.ReplaceAll(text, fmt.Sprintf("10.0.0.%d:7401", i+1), addrs[2*i])
			text = strings.ReplaceAll(text, fmt.Sprintf("10.0.0.%d:8080", i+1), addrs[2*i+1])
		}
		return strings.NewReplacer(
			"/var/lib/rcd", filepath.Join(dir, node), "/var/lib/rc-agent", filepath.Join(dir, "agent"),
			"/etc/rc/agent.yaml", filepath.Join(dir, "agent.yaml"),
		).Replace(text)
	}
	var serve, agent, drain, tokens string
	for _, line := range commands(guide) {
		switch {
		case strings.HasPrefix(line, "rcd serve "):
			serve = line
		case strings.HasPrefix(line, "rcd agent --config"):
			agent = line
		case strings.HasPrefix(line, "rcd agent drain"):
			drain = line
		case strings.HasPrefix(line, "export RC_TOKENS="):
			tokens = strings.TrimPrefix(line, "export ")
		}
	}
	var yaml string
	for _, block := range fence.FindAllStringSubmatch(guide, -1) {
		if strings.Contains(block[1], "data_dir:") {
			yaml = block[1]
		}
	}
	if serve == "" || agent == "" || drain == "" || tokens == "" || yaml == "" {
		t.Fatal("the guide has lost one of its commands")
	}
	if err := os.WriteFile(filepath.Join(dir, "agent.yaml"), []byte(place(yaml, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	start := func(line string, env ...string) *Proc {
		argv := strings.Fields(line)
		argv[0] = bin.RCD
		p := &Proc{ID: argv[1], argv: argv, env: append(env, "PATH="+os.Getenv("PATH")), logPath: filepath.Join(dir, "log")}
		p.Start(t)
		t.Cleanup(func() { p.End(syscall.SIGTERM) })
		return p
	}
	for i := range 3 {
		id := fmt.Sprintf("c%d", i+1)
		own := strings.Replace(serve, "--id c1", "--id "+id, 1)
		own = strings.Replace(own, "--listen 10.0.0.1", fmt.Sprintf("--listen 10.0.0.%d", i+1), 1)
		own = strings.Replace(own, "--http 10.0.0.1", fmt.Sprintf("--http 10.0.0.%d", i+1), 1)
		start(place(own, id), tokens, "RCD_CLUSTER_KEY="+ClusterKey)
	}
	start(place(agent, ""))
	rc := func(args ...string) ([]byte, error) {
		cmd := exec.Command(bin.RC, args...)
		cmd.Env = []string{"RC_CONTROLLER=http://" + addrs[1], "RC_TOKEN=ann", "HOME=" + dir, "USER=ann"}
		return cmd.CombinedOutput()
	}
	eventually(t, "two devices of the guide", func() bool {
		out, err := rc("devices")
		return err == nil && bytes.Count(out, []byte("ready")) == 2
	})
	if out, err := rc("run", "--select", "vram>=40G", "--", "true"); err != nil {
		t.Errorf("rc run: %v\n%s", err, out)
	}
	argv := strings.Fields(place(drain, ""))
	if out, err := exec.Command(bin.RCD, argv[1:]...).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", drain, err, out)
	}
}

func TestDemoRuns(t *testing.T) {
	begun := time.Now()
	cmd := exec.Command(filepath.Join(root, "scripts/demo"))
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("each once and in order")) || !bytes.Contains(out, []byte("nothing is left running")) ||
		!bytes.Contains(out, []byte("gpu0: leases seen: 1\nno double use\n")) {
		t.Fatalf("scripts/demo: %v\n%s", err, out)
	}
	t.Logf("scripts/demo took %v, the build included", time.Since(begun).Round(time.Second))
}
