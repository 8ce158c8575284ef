package main

import (
	"rcd/agent"
	"rcd/agent/probe"
)

type agentCmd struct {
	Run_    agentRunCmd     `cmd:"" name:"run" default:"withargs" help:"Run the agent (the default)."`
	Devices agentDevicesCmd `cmd:"" help:"Print which devices an agent would declare here, and which GPU each is."`
	Drain   agentDrainCmd   `cmd:"" help:"End every job under a data directory, with its whole process tree."`
	Witness agentWitnessCmd `cmd:"" help:"Say whether two leases were ever on one simulated device."`
}

type agentRunCmd struct {
	Config string `short:"c" type:"path" default:"/etc/rc/agent.yaml" placeholder:"FILE" help:"The host's configuration."`
}

// Help is shown by rcd agent --help.
func (agentCmd) Help() string {
	return `The worker token comes from the configuration or from RC_TOKEN.
Stopping the agent leaves its jobs running; the next start takes them up again.

Example configuration:
  controllers: [10.0.0.1:7401, 10.0.0.2:7401, 10.0.0.3:7401]
  host: box
  data_dir: /var/lib/rc-agent
  devices:
    - name: gpu0
      max_runtime: 24h
      labels: {vram: 80G}
    - gpu1`
}

func (c *agentRunCmd) Run(s *session) error {
	hideSecrets(s.logger)
	config, err := agent.LoadConfig(c.Config)
	if err != nil {
		return err
	}
	return agent.Run(s.ctx, config, agent.Deps{Logger: s.logger, Version: version, GPUs: probe.NVIDIA()})
}

type agentDrainCmd struct {
	Config string `short:"c" type:"path" default:"/etc/rc/agent.yaml" placeholder:"FILE" help:"The host's configuration."`
}

func (c *agentDrainCmd) Run(s *session) error {
	config, err := agent.LoadConfig(c.Config)
	if err != nil {
		return err
	}
	return agent.Drain(s.ctx, config.DataDir, s.logger)
}
