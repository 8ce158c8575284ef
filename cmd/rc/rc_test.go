package main

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"rcd/agent/shim"
	"rcd/jepsen/onehost"
)

var update = flag.Bool("update", false, "write what rc prints into the scripts, where they compare it")

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "shim" {
		os.Exit(shim.Main(os.Args[2:])) // see startAndEnd
	}
	testscript.Main(m, map[string]func(){"rc": func() {
		if now, err := time.Parse(time.RFC3339, os.Getenv("RC_TEST_NOW")); err == nil {
			clock = func() time.Time { return now }
		}
		main()
	}})
}

// TestScripts runs rc against a fake controller. Each script in testdata reads
// as documentation of a verb. Beside the usual commands there is
//
//	exits CODE rc ARGS…   the command ends with this code
//	follow N rc ARGS…     Ctrl-C after N lines; they are in the files out and err
//	await WHAT N          the controller has seen N of them: looks at queued
//	                      jobs, views of running ones, hanging streams, or heartbeats
//	host                  from here on there is a host that runs pipe jobs, at
//	                      home in the directory home; its device is free, and
//	host KIND WHO         held by a job or a hold of WHO
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: *update,
		Setup: func(e *testscript.Env) error {
			c := newController()
			e.Defer(func() {
				c.CloseClientConnections()
				c.Close()
			})
			e.Values[controllerKey{}] = c
			e.Values[hostKey{}] = &onehost.Host{Home: filepath.Join(e.WorkDir, "home"), Path: os.Getenv("PATH")}
			e.Setenv("RC_CONTROLLER", c.URL)
			e.Setenv("RC_TOKEN", "secret")
			e.Setenv("RC_SUBMITTER", "ann@box")
			e.Setenv("RC_CONFIG", e.WorkDir+"/absent.yaml")
			e.Setenv("COLUMNS", "100")
			e.Setenv("RC_TEST_NOW", "2026-01-02T03:14:06Z")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"await":  await,
			"follow": follow,
			"host":   host,
			"exits": func(ts *testscript.TestScript, neg bool, args []string) {
				if neg || len(args) < 2 {
					ts.Fatalf("usage: exits CODE COMMAND ARGS…")
				}
				err := ts.Exec(args[1], args[2:]...)
				code := 0
				var exit *exec.ExitError
				if errors.As(err, &exit) {
					code = exit.ExitCode()
				} else if err != nil {
					ts.Fatalf("%v", err)
				}
				if want, _ := strconv.Atoi(args[0]); code != want {
					ts.Fatalf("exit code %d, want %d", code, want)
				}
			},
		},
	})
}

type controllerKey struct{}

// await waits until the fake controller has seen something, so that a signal
// comes when rc is where the script wants it.
func await(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await WHAT N")
	}
	c := ts.Value(controllerKey{}).(*controller)
	want, _ := strconv.Atoi(args[1])
	for deadline := time.Now().Add(awaitWithin); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		c.mu.Lock()
		seen := map[string]int{"looks": c.looks, "views": c.views, "hanging": c.hanging, "beats": c.beats}[args[0]]
		c.mu.Unlock()
		if seen >= want {
			return
		}
	}
	ts.Fatalf("not seen within %v", awaitWithin)
}

const awaitWithin = 20 * time.Second
