package main

import (
	"errors"
	"fmt"
	"strings"

	"rcd/agent"
	"rcd/agent/witness"
)

// errDoubleUse is what the exit status of rcd agent witness says.
var errDoubleUse = errors.New("a simulated device was used twice")

type agentWitnessCmd struct {
	Config string `short:"c" type:"path" default:"/etc/rc/agent.yaml" placeholder:"FILE" help:"The host's configuration."`
}

// Help is shown by rcd agent witness --help.
func (agentWitnessCmd) Help() string {
	return `Each process of a job on a simulated device holds a lock, and each lease is in
a log. This reads the logs, and exits with 1 if two leases were ever on one
device. The cluster of rcd dev --data DIR has DIR/agent.yaml.`
}

func (c *agentWitnessCmd) Run(s *session) error {
	config, err := agent.LoadConfig(c.Config)
	if err != nil {
		return err
	}
	report, err := witness.Check(agent.WitnessDir(config.DataDir))
	if err != nil {
		return err
	}
	for _, d := range report.Devices {
		held := ""
		if d.Held {
			held = ", the last one still there"
		}
		if _, err := fmt.Fprintf(s.stdout, "%s: leases seen: %d%s\n", d.Device, len(d.Begun), held); err != nil {
			return err
		}
	}
	if len(report.Breaches) > 0 {
		return fmt.Errorf("%w:\n%s", errDoubleUse, strings.Join(report.Breaches, "\n"))
	}
	_, err = fmt.Fprintln(s.stdout, "no double use")
	return err
}
