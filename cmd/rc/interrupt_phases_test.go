package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"rcd/wire"
)

// submit has the fake take a job without rc.
func (c *controller) submitted(t *testing.T, request wire.SubmitRequest) {
	t.Helper()
	raw, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequest(http.MethodPost, c.URL+"/v1/jobs", bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer secret")
	req.Header.Set(wire.HeaderRequestID, "by-the-test")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		t.Fatalf("submit: %s", resp.Status)
	}
}

// phase is one moment at which a verb is interrupted.
type phase struct {
	verb string
	args string // words
	job  string // words of a job that is there before
	// seen is what the controller has had from rc by then.
	seen  func(*controller) int
	says  string
	state string // of j-1 afterwards; "": there is none
}

func looks(c *controller) int   { return c.looks }
func views(c *controller) int   { return c.views }
func hanging(c *controller) int { return c.hanging }
func muted(c *controller) int   { return c.muted }
func shown(c *controller) int   { return c.shown }

// The first look of a verb that takes the beginning of an ID is to find the job.
func secondLook(c *controller) int { return c.looks - 1 }
func secondView(c *controller) int { return c.views - 1 }

const watched = "rc: interrupted; rc only watched "

var phases = map[string]phase{
	"run, queued":                          {"run", "-d box:gpu0 -- queue:0", "", looks, "rc: interrupted; job j-1 was queued and is cancelled\n", "killed"},
	"run, placed and not started":          {"run", "-d box:gpu0 -- assigned hang", "", hanging, "rc: detached; job j-1 goes on, on box:gpu0. ", "assigned"},
	"run, running":                         {"run", "-d box:gpu0 -- hang", "", hanging, "rc: detached; job j-1 goes on, on box:gpu0. ", "running"},
	"run, output over and end not told":    {"run", "-d box:gpu0 -- out:x behind", "", views, "rc: detached; job j-1 goes on, on box:gpu0. ", "running"},
	"run, ended at that moment":            {"run", "-d box:gpu0 -- out:x stalled", "", muted, "rc: interrupted; job j-1 had ended: succeeded. Its output: rc logs j-1\n", "succeeded"},
	"wait, queued":                         {"wait", "j-1", "queue:0", looks, watched + "job j-1, and has changed nothing\n", "queued"},
	"wait for scheduled, queued":           {"wait", "j-1 --for scheduled", "queue:0", looks, watched + "job j-1", "queued"},
	"wait, running":                        {"wait", "j-1 -o json", "hang", views, `{"code":"interrupted","message":"interrupted; rc only watched job j-1, and has changed nothing"`, "running"},
	"logs -f, queued":                      {"logs", "-f j-1", "queue:0 hang", hanging, watched + "job j-1", "queued"},
	"logs -f, running":                     {"logs", "-f j-1", "hang", hanging, watched + "job j-1", "running"},
	"attach, queued":                       {"attach", "j-1", "queue:0", secondLook, "rc: detached; job j-1 is as it was. ", "queued"},
	"attach, placed and not started":       {"attach", "j-1", "assigned hang", hanging, "rc: detached; job j-1 is as it was. ", "assigned"},
	"attach, running":                      {"attach", "j-1", "hang", hanging, "rc: detached; job j-1 is as it was. ", "running"},
	"attach, output over and end not told": {"attach", "j-1", "out:x behind", secondView, "rc: detached; job j-1 is as it was. ", "running"},
	"hold, queued":                         {"hold", "box:gpu0 --ttl 1h --reason queue:0", "", looks, "rc: interrupted; job j-1 was queued and is cancelled\n", "killed"},
	"hold, held":                           {"hold", "box:gpu0 --ttl 1h --reason mine", "", views, "rc: interrupted; hold j-1 is released\n", "killed"},
	"events":                               {"events", "", "", hanging, "rc: interrupted behind event 1-", ""},
	"devices --watch":                      {"devices", "--watch", "", shown, watched + "the devices", ""},
	"jobs --watch":                         {"jobs", "--watch", "queue:0", shown, watched + "the jobs", "queued"},
	"ps --watch":                           {"ps", "--watch", "", shown, watched + "the jobs", ""},
	"kill, before the answer":              {"kill", "j-1", "hang numb", muted, "rc: interrupted; a controller had the request already, so it may have been carried out. Look before you ask again: rc jobs, rc devices\n", "killed"},
	"release, before the answer":           {"release", "j-1", "hang numb", muted, "rc: interrupted; a controller had the request already", "killed"},
	"release, its host at work":            {"release", "j-1", "hang slow:1000", views, "rc: interrupted; job j-1 is being ended; wait for that: rc wait j-1\n", "running"},
	"extend, before the answer":            {"extend", "j-1 1h", "hang numb", muted, "rc: interrupted; a controller had the request already", "running"},
}

// TestWhatIsLeftBehindIsWhatRcSays interrupts each long verb in each of its
// phases, by each signal that means so, and then looks at the controller.
func TestWhatIsLeftBehindIsWhatRcSays(t *testing.T) {
	t.Parallel()
	for name, ph := range phases {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			t.Run(name+", "+sig.String(), func(t *testing.T) {
				t.Parallel()
				p := startable(t, append([]string{ph.verb}, strings.Fields(ph.args)...)...)
				if ph.job != "" {
					p.controller.submitted(t, wire.SubmitRequest{DeviceID: "box:gpu0", Submitter: "ann@box", Command: strings.Fields(ph.job), MaxRuntimeSeconds: 60})
				}
				if err := p.Start(); err != nil {
					t.Fatal(err)
				}
				p.until(t, func() bool { return ph.seen(p.controller) > 0 })
				if err := p.Process.Signal(sig); err != nil {
					t.Fatal(err)
				}
				if code := p.exit(t); code != exitInterrupted || !strings.Contains(p.stderr.String(), ph.says) {
					t.Errorf("exit code %d, stderr %swant in it: %s", code, &p.stderr, ph.says)
				}
				p.controller.mu.Lock()
				defer p.controller.mu.Unlock()
				switch {
				case ph.state == "" && len(p.controller.jobs) > 0, len(p.controller.jobs) > 1:
					t.Errorf("%d jobs", len(p.controller.jobs))
				case ph.state != "" && p.controller.jobs[0].State != ph.state:
					t.Errorf("the job is %s, want %s", p.controller.jobs[0].State, ph.state)
				}
			})
		}
	}
}

// Reads and changes that no controller has heard of leave nothing.
func TestCtrlCBeforeAnyControllerAnswersSaysThatNothingWasChanged(t *testing.T) {
	t.Parallel()
	type started struct {
		*process
		said func() string
	}
	all := map[string]started{} // together, because each waits for 3 s
	for _, args := range []string{"wait j-1", "logs -f j-1", "attach j-1", "devices --watch", "jobs --watch", "ps --watch", "describe box:gpu0",
		"kill j-1", "release j-1", "extend j-1 1h", "clear box:gpu0", "retire box:gpu0 --yes", "settings aging_ms 5"} {
		p := startable(t, strings.Fields(args)...)
		all[args] = started{p, p.watch(t)}
		p.controller.Close()
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for args, p := range all {
		p.noticed(t, p.said)
		if err := p.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		code := p.exit(t)
		if text := p.said(); code != exitInterrupted || !strings.Contains(text, "rc: interrupted; nothing was changed\n") && !strings.Contains(text, "and has changed nothing\n") {
			t.Errorf("rc %s: exit code %d, stderr %s", args, code, text)
		}
	}
}

// nohup has SIGHUP ignored, and that must stay so.
func TestUnderNohupTheEndOfTheTerminalIsNone(t *testing.T) {
	t.Parallel()
	p := startable(t, "run", "-d", "box:gpu0", "--", "out:one", "hang", "out:two")
	p.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh", p.Path}, p.Args[1:]...)
	p.Path = "/bin/sh"
	out := &bytes.Buffer{}
	p.Stdout = out
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	p.awaits(t, &p.controller.hanging)
	// That a signal does nothing cannot be waited for; that it is ignored can be
	// read.
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	if err != nil {
		t.Skip(err)
	}
	_, mask, _ := strings.Cut(string(status), "SigIgn:\t")
	mask, _, _ = strings.Cut(mask, "\n")
	ignored, err := strconv.ParseUint(mask, 16, 64)
	if err != nil || ignored&(1<<(syscall.SIGHUP-1)) == 0 {
		t.Errorf("SIGHUP is not ignored: %s, %v", mask, err)
	}
	if err := p.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	close(p.controller.jobs[0].killed) // lets the script go on
	if code := p.exit(t); code != exitOK || out.String() != "one\ntwo\n" {
		t.Errorf("exit code %d, stdout %q, stderr %s", code, out, &p.stderr)
	}
}
