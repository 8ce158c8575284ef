package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"rcd/client"
)

// cli is the whole command line; each verb is in the file of its name.
type cli struct {
	Run      runCmd      `cmd:"" help:"Run a command on a device: queue, follow its output, exit with its code."`
	Ps       psCmd       `cmd:"" help:"List what runs and what is queued."`
	Devices  devicesCmd  `cmd:"" help:"List the devices and who holds them."`
	Jobs     jobsCmd     `cmd:"" help:"List jobs, ended ones too, newest first."`
	Describe describeCmd `cmd:"" help:"Show all that is known of a device (holder, labels, usage sheet, last jobs), or of a job."`
	Logs     logsCmd     `cmd:"" help:"Print the output of a job."`
	Attach   attachCmd   `cmd:"" help:"Watch a job's output or terminal from the beginning, or take the terminal over."`
	Cp       cpCmd       `cmd:"" help:"Copy files to the host of a device, or from there."`
	Wait     waitCmd     `cmd:"" help:"Wait until jobs have ended, or have their devices."`
	Hold     holdCmd     `cmd:"" help:"Take a device for yourself, without a job."`
	Exec     execCmd     `cmd:"" help:"Run a command, or a shell, on a device that you hold."`
	Extend   extendCmd   `cmd:"" help:"Lengthen the limit of a job or a hold."`
	Release  releaseCmd  `cmd:"" help:"Give a device back before a hold, or a job, has ended."`
	Kill     killCmd     `cmd:"" help:"End a job, or take it out of the queue."`
	Events   eventsCmd   `cmd:"" help:"Follow what happens to jobs and devices."`
	Clear    clearCmd    `cmd:"" help:"Return a device from quarantine to the pool (admin)."`
	Retire   retireCmd   `cmd:"" help:"Take a device, or a host that is gone, out of the fleet (admin)."`
	Settings settingsCmd `cmd:"" help:"Show the replicated settings, or change one (admin)."`
	Raft     raftCmd     `cmd:"" help:"Look at the controllers and at their replicated log."`
	Whoami   whoamiCmd   `cmd:"" help:"Show what the token allows and whom jobs are submitted as."`
	Version  versionCmd  `cmd:"" help:"Print the versions of rc and of the cluster."`
	Help     helpCmd     `cmd:"" help:"Show the help of a verb, or a guide: rc help agents."`

	Context    contextCmd    `cmd:"" help:"List the clusters that rc knows, and choose one."`
	Completion completionCmd `cmd:"" help:"Print the completion script of a shell."`
	Serve      serveCmd      `cmd:"" hidden:""`
	Worker     workerCmd     `cmd:"" hidden:""`

	ContextName string `name:"context" placeholder:"NAME" help:"Cluster to ask, of those that rc context list shows."`
}

const description = `Lease whole devices and run work on the host that has them.

RC_CONTROLLER lists the addresses of any controllers, separated by commas; any
of them will do. RC_TOKEN is the token, RC_SUBMITTER whom jobs are submitted as.
The file $RC_CONFIG, or rc/config.yaml in the user's configuration folder, may
give the same as controller, token and submitter, or several clusters: see rc
context --help.

Examples:

    rc devices
    rc run --select 'vram>=40G' -- python train.py
    rc ps
    rc logs -f j-48213
    rc kill j-48213`

// app is what verbs work with.
type app struct {
	stdout, stderr io.Writer
	env            func(string) string
	conf           config
	now            func() time.Time // for ages in tables
	forPrograms    bool             // errors go out as JSON
	// ctx ends with errInterrupted at the first SIGINT, SIGTERM or SIGHUP.
	ctx context.Context
}

// clock is another one in tests.
var clock = time.Now

func main() { os.Exit(run()) }

// run is main with its exit code returned, so that tests can be it.
func run() int {
	a := &app{stdout: os.Stdout, stderr: os.Stderr, env: os.Getenv, now: clock}
	var c cli
	parser, err := newParser(&c, a.stdout, a.stderr)
	if err != nil {
		panic(err) // a mistake in the structs, seen by any test
	}
	args := os.Args[1:]
	if len(args) == 0 {
		args = []string{"--help"}
	}
	if args[0] == completeVerb {
		return a.complete(parser.Model.Node, args[1:])
	}
	a.forPrograms = forPrograms(args)
	for _, word := range args {
		if !utf8.ValidString(word) { // the parser would change it, and JSON cannot hold it
			return a.fail(&usageError{text: fmt.Sprintf("%.100q is not UTF-8, and rc takes nothing else; a file of such a name travels with its directory", word)})
		}
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		return a.fail(&usageError{text: err.Error(), verb: verbOf(err)})
	}
	a.conf = loadConfig(c.ContextName, a.env, a.stderr)
	ctx, stop := interruptible(context.Background())
	defer stop()
	a.ctx = ctx
	return a.fail(parsed.Run(a))
}

func newParser(c *cli, stdout, stderr io.Writer) (*kong.Kong, error) {
	options := []kong.Option{kong.Name("rc"), kong.Description(description),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, NoExpandSubcommands: true, WrapUpperBound: helpWidth}),
		kong.Writers(stdout, stderr)}
	return kong.New(c, append(options, afterEquals()...)...)
}

// helpWidth keeps help readable on wide screens.
const helpWidth = 100

// client makes the client of all verbs.
func (a *app) client() (*client.Client, error) {
	return a.newClient(client.Options{Notify: func(n client.Notice) { a.say("%s", n) }})
}

func (a *app) newClient(o client.Options) (*client.Client, error) {
	if a.conf.err != nil {
		return nil, a.conf.err
	}
	o.Controllers, o.Token = a.conf.controllers, a.conf.token
	c, err := client.New(o)
	if err != nil {
		return nil, &usageError{text: a.conf.from.controllers + ": " + err.Error()}
	}
	return c, nil
}

// say prints one line of talk, whatever names and reasons it holds.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.stderr, "rc: %s\n", clean(fmt.Sprintf(format, args...)))
}
