package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"rcd/agent/shim"
)

// version is set by -ldflags "-X main.version=…"; a plain build says "dev".
var version = "dev"

type cli struct {
	Serve   serveCmd   `cmd:"" help:"Run one controller."`
	Agent   agentCmd   `cmd:"" help:"Run the agent of a device host, or drain it."`
	Dev     devCmd     `cmd:"" help:"Keep a small cluster on this machine in the foreground."`
	Version versionCmd `cmd:"" help:"Print the version."`

	LogLevel string `help:"Least level to log: debug, info, warn or error." default:"info" enum:"debug,info,warn,error" env:"RCD_LOG_LEVEL"`
}

// session is what every verb gets.
type session struct {
	ctx    context.Context  // ends with one of endSignals
	hangup <-chan os.Signal // SIGHUP, for the verb that reads its configuration again; else nil
	logger *slog.Logger
	stdout io.Writer
	stderr io.Writer
}

type versionCmd struct{}

func (versionCmd) Run(s *session) error {
	_, err := fmt.Fprintln(s.stdout, "rcd", version)
	return err
}

func main() {
	// The shim is not a verb: it must start fast, outlive its parent and touch
	// nothing that the daemons set up.
	if len(os.Args) > 1 && os.Args[1] == "shim" {
		os.Exit(shim.Main(os.Args[2:]))
	}
	os.Exit(run(os.Args[1:]))
}

func run(args []string) int {
	var c cli
	parser, err := kong.New(&c,
		kong.Name("rcd"),
		kong.Description("The daemon of rc: controllers that lease devices, agents that run jobs on them.\n\nTry a whole cluster on this machine: rcd dev"),
		kong.UsageOnError(),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rcd:", err)
		return 1
	}
	kctx, err := parser.Parse(args)
	if err != nil {
		fmt.Fprintf(os.Stderr, "rcd: %v\nrcd: see rcd --help\n", err)
		return 2
	}
	var hangup chan os.Signal
	if kctx.Command() == agentRun {
		hangup = make(chan os.Signal, 1)
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
	}
	ctx, stop := signal.NotifyContext(context.Background(), endSignals(hangup != nil)...)
	defer stop()
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); err != nil {
		fmt.Fprintln(os.Stderr, "rcd:", err)
		return 2
	}
	s := &session{
		ctx:    ctx,
		hangup: hangup,
		logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
		stdout: os.Stdout,
		stderr: os.Stderr,
	}
	if err := kctx.Run(s); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "rcd:", err)
		return 1
	}
	return 0
}

// agentRun is the verb that SIGHUP does not end, even under nohup: a daemon's
// supervisor sends it to have the configuration read again.
const agentRun = "agent run"

// endSignals are those that end a verb in order. SIGHUP is what a terminal
// sends that is closed; under nohup it is ignored, and stays so.
func endSignals(reloads bool) []os.Signal {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	if !reloads && !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	return signals
}
