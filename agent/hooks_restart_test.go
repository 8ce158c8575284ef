package agent

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"rcd/agent/proc"
	"rcd/wire"
)

func TestEveryOnReleaseRunsAtTheStartBeforeAnyJob(t *testing.T) {
	b := newHooked(t, never, "[ -e go ] || touch early", "[ $RC_DEVICE = box:gpu1 ] || "+untilThere("go"))
	b.Devices[1].Hooks.OnAcquire = ""
	c := controlOf(t, &b.Config)
	startAgent(t, b.Config)
	c.want(1, nil, "true")
	c.want(2, func(s *wire.StartJob) { s.Devices = []string{"box:gpu1"} }, "true")
	// A device whose release takes its time delays no other.
	if o := c.outcome(t, 2); *o.ExitCode != 0 {
		t.Errorf("outcome %+v", o)
	}
	b.touch(t, "go")
	if o := c.outcome(t, 1); *o.ExitCode != 0 || exists(b.dir, "early") {
		t.Errorf("outcome %+v, acquired before the release was over: %v", o, exists(b.dir, "early"))
	}
	if got := b.ran("gpu0"); got != "release box:gpu0  \nacquire box:gpu0 j-1 ann\n" {
		t.Errorf("gpu0 ran %q", got)
	}
	if got := b.ran("gpu1"); got != "release box:gpu1  \n" {
		t.Errorf("gpu1 ran %q", got)
	}
}

func TestADeviceStaysHeldAcrossARestartOfTheAgent(t *testing.T) {
	b := newHooked(t, never, "", "")
	c := controlOf(t, &b.Config)
	first := startAgent(t, b.Config)
	c.want(1, nil, sh(strings.ReplaceAll(untilThere("FILE"), "FILE", b.dir+"/go"))...)
	eventually(t, "running", func() bool { return c.isRunning(1) })
	first.stop()
	held := "release box:gpu0  \nacquire box:gpu0 j-1 ann\n"
	if got := b.ran("gpu0"); got != held {
		t.Errorf("after the stop: %q", got)
	}
	second := startAgent(t, b.Config)
	eventually(t, "release of the idle device", func() bool { return b.ran("gpu1") == "release box:gpu1  \nrelease box:gpu1  \n" })
	b.touch(t, "go")
	c.outcome(t, 1)
	c.want(2, nil, "true") // within the linger
	c.outcome(t, 2)
	if got := b.ran("gpu0"); got != held {
		t.Errorf("with the second agent: %q", got)
	}
	second.stop()
	if got := b.ran("gpu0"); got != held+"release box:gpu0 j-2 ann\n" {
		t.Errorf("after all: %q", got)
	}
}

// TestAJobThatEndedWhileTheAgentWasAwayLeavesNothingHeld: the agent before may
// have run on_release for it, so the next job does not rely on anything.
func TestAJobThatEndedWhileTheAgentWasAwayLeavesNothingHeld(t *testing.T) {
	b := newHooked(t, never, "", "")
	c := controlOf(t, &b.Config)
	first := startAgent(t, b.Config)
	c.want(1, nil, sh(strings.ReplaceAll(untilThere("FILE"), "FILE", b.dir+"/go"))...)
	eventually(t, "running", func() bool { return c.isRunning(1) })
	first.stop()
	b.touch(t, "go")
	eventually(t, "over", func() bool { return exists(b.DataDir, jobsDir, "1-1", "result.cbor") })
	second := startAgent(t, b.Config)
	c.outcome(t, 1)
	c.want(2, nil, "true")
	c.outcome(t, 2)
	second.stop()
	if got := b.ran("gpu0"); got != "release box:gpu0  \nacquire box:gpu0 j-1 ann\nacquire box:gpu0 j-2 ann\nrelease box:gpu0 j-2 ann\n" {
		t.Errorf("ran %q", got)
	}
}

func TestAnAgentThatStopsDuringOnAcquireLeavesTheJobToTheNext(t *testing.T) {
	b := newHooked(t, never, "echo $$ >> pids; [ -e go ] || exec sleep 600", "")
	c := controlOf(t, &b.Config)
	first := startAgent(t, b.Config)
	c.want(1, nil, sh("echo x >> "+b.dir+"/runs; exit 7")...)
	eventually(t, "acquiring", func() bool { return lines(b.dir+"/pids") == 1 })
	id := identifyScript(t, b.dir+"/pids")[0]
	first.stop()
	if proc.Alive(id) || exists(b.dir, "runs") || exists(b.DataDir, jobsDir, "1-1") {
		t.Errorf("hook alive: %v, job ran: %v, job on disk: %v", proc.Alive(id), exists(b.dir, "runs"), exists(b.DataDir, jobsDir, "1-1"))
	}
	b.touch(t, "go")
	startAgent(t, b.Config)
	if o := c.outcome(t, 1); *o.ExitCode != 7 || o.Survivors != "" || lines(b.dir+"/runs") != 1 {
		t.Errorf("outcome %+v, %d runs", o, lines(b.dir+"/runs"))
	}
	if got, release := b.ran("gpu0"), "release box:gpu0"; got != release+"  \nacquire box:gpu0 j-1 ann\n"+release+" j-1 ann\n"+release+"  \nacquire box:gpu0 j-1 ann\n" {
		t.Errorf("ran %q", got)
	}
}

func TestAStoppingAgentLetsOnReleaseEnd(t *testing.T) {
	b := newHooked(t, 0, "", "[ -z \"$RC_JOB_ID\" ] || { touch releasing; "+untilThere("go")+"; touch released; }")
	c := controlOf(t, &b.Config)
	r := startAgent(t, b.Config)
	c.want(1, nil, "true")
	eventually(t, "releasing", func() bool { return exists(b.dir, "releasing") })
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.stop()
	}()
	eventually(t, "detached", func() bool { return !c.hub.Attached("box") })
	b.touch(t, "go")
	<-done
	if !exists(b.dir, "released") {
		t.Error("on_release was ended by the agent's stop")
	}
}

// TestAnAgentKilledInOnAcquireIsFollowedByOneThatAcquiresAlone: the hook of the
// first is ended before the second runs one, and the job runs once.
func TestAnAgentKilledInOnAcquireIsFollowedByOneThatAcquiresAlone(t *testing.T) {
	b := newHooked(t, never, "", "")
	c := controlOf(t, &b.Config)
	alone := `cd ` + b.dir + `; echo $$ $RC_EVENT >> runs
while read pid event; do [ $pid = $$ ] || ! grep -qs "^State:.[^ZX]" /proc/$pid/status || touch together; done < runs
[ $RC_EVENT = release -o -e go ] || { echo $$ > pid; sleep 600; }`
	hook := executableFile(t, filepath.Join(b.dir, "hook"), alone)
	yaml := fmt.Sprintf("devices: [{name: gpu0, on_acquire: %s, on_release: %s}]\nhooks: {release_linger: 1h}\n", hook, hook)
	cmd := startProcessWith(t, c, b.DataDir, yaml)
	c.want(1, nil, sh("echo x >> "+b.dir+"/jobs; exit 7")...)
	eventually(t, "acquiring", func() bool { return lines(b.dir+"/pid") == 1 })
	id := identifyScript(t, b.dir+"/pid")[0]
	cmd.end(unix.SIGKILL)
	if !proc.Alive(id) {
		t.Error("the hook has ended with the agent: nothing is shown by this")
	}
	b.touch(t, "go")
	startProcessWith(t, c, b.DataDir, yaml)
	if o := c.outcome(t, 1); o.ExitCode == nil || *o.ExitCode != 7 || o.Survivors != "" {
		t.Errorf("outcome %+v", o)
	}
	if proc.Alive(id) || exists(b.dir, "together") || lines(b.dir+"/jobs") != 1 || lines(b.dir+"/runs") != 4 {
		t.Errorf("first hook alive: %v, two at a time: %v, %d jobs, hooks\n%s", proc.Alive(id), exists(b.dir, "together"), lines(b.dir+"/jobs"), read(t, b.dir, "runs"))
	}
}
