package main

import (
	"os"
	"os/signal"
	"syscall"

	"rcd/internal/dev"
)

type devCmd struct {
	Controllers int    `default:"3" placeholder:"N" help:"Controllers: 1, 3 or 5."`
	Devices     int    `default:"2" placeholder:"N" help:"Simulated devices of the one host, dev:gpu0 and on."`
	Data        string `type:"path" placeholder:"DIR" help:"Keep the cluster's data here, and go on from it the next time."`
	Output      string `short:"o" default:"text" enum:"text,json" placeholder:"text|json" help:"With json, print one line when the cluster is ready."`
}

// Help is shown by rcd dev --help.
func (devCmd) Help() string {
	return `Starts controllers and an agent as separate processes on loopback, prints the
environment that rc needs, and stays in the foreground. Ctrl-C, or closing
the terminal, ends the jobs and every process. A process that is killed from outside is not restarted.

Examples:
  rcd dev
  rcd dev --controllers 1 --devices 8
  rcd dev --data ./cluster
  rcd dev -o json`
}

func (c *devCmd) Run(s *session) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	// Whoever reads the output may go first (rcd dev | tee, a closed terminal);
	// a write must fail then, and not end this process before its children.
	// Not Ignore: that would be inherited by every job.
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	return dev.Run(s.ctx, dev.Config{
		Binary:      self,
		Controllers: c.Controllers,
		Devices:     c.Devices,
		DataDir:     c.Data,
		JSON:        c.Output == "json",
		Stdout:      s.stdout,
		Stderr:      s.stderr,
	})
}
