package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"

	"rcd/agent"
	"rcd/agent/probe"
)

type agentDevicesCmd struct {
	Config string `short:"c" type:"path" default:"/etc/rc/agent.yaml" placeholder:"FILE" help:"The host's configuration."`
	Output string `short:"o" default:"text" enum:"text,json" placeholder:"text|json" help:"How to print."`
	Forget string `placeholder:"DEVICE" help:"Forget which GPU DEVICE is, while no agent runs here."`
}

// Help is shown by rcd agent devices --help.
func (agentDevicesCmd) Help() string {
	return `Looks at the GPUs of this host and prints the devices that an agent would declare,
and which GPU each is. It needs no agent and no controller, and changes nothing
without --forget.`
}

func (c *agentDevicesCmd) Run(s *session) error {
	config, err := agent.LoadConfig(c.Config)
	if err != nil {
		return err
	}
	if c.Forget != "" {
		return agent.Forget(config.DataDir, c.Forget)
	}
	devices, notices, err := agent.Inspect(s.ctx, config, probe.NVIDIA())
	for _, n := range notices {
		fmt.Fprintln(s.stderr, "rcd:", n)
	}
	if err != nil {
		if !errors.Is(err, probe.ErrAbsent) && !errors.Is(err, probe.ErrHung) {
			return err
		}
		fmt.Fprintln(s.stderr, "rcd: no GPU was seen:", err)
	}
	if c.Output == "json" {
		if devices == nil {
			devices = []agent.DeviceView{}
		}
		return json.NewEncoder(s.stdout).Encode(devices)
	}
	t := tabwriter.NewWriter(s.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "NAME\tGPU\tUUID\tPCI\tMODEL\tVRAM\tDETAIL")
	for _, d := range devices {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", d.Name, dash(d.GPU), dash(d.UUID), dash(d.PCI), dash(d.Model), dash(d.VRAM), d.Detail)
	}
	return t.Flush()
}

// dash stands for what is not known.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
