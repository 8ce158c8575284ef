package main

import (
	"context"
	"sync"

	"rcd/agent"
	"rcd/agent/probe"
	"rcd/internal/sdnotify"
)

type agentCmd struct {
	Run_    agentRunCmd     `cmd:"" name:"run" default:"withargs" help:"Run the agent (the default)."`
	Status  agentStatusCmd  `cmd:"" help:"Say which jobs and devices the agent on this host has."`
	Devices agentDevicesCmd `cmd:"" help:"Print which devices an agent would declare here, and which GPU each is."`
	Drain   agentDrainCmd   `cmd:"" help:"Take this host's devices out of the pool and wait for its jobs, or end them."`
	Witness agentWitnessCmd `cmd:"" help:"Say whether two leases were ever on one simulated device."`
}

// agentConfig is the flag of every agent verb.
type agentConfig struct {
	Config string `short:"c" type:"path" default:"/etc/rc/agent.yaml" placeholder:"FILE" help:"The host's configuration."`
}

type agentRunCmd struct {
	agentConfig
}

// Help is shown by rcd agent --help.
func (agentCmd) Help() string {
	return `The worker token comes from the configuration or from RC_TOKEN.
Stopping the agent leaves its jobs running; the next start takes them up again.
SIGHUP has it read its configuration again; it logs which keys have changed and
which of them need a restart.

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
	supervisor := newSupervisor(s.logger)
	config, err := agent.LoadConfig(c.Config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(s.ctx)
	reload := make(chan agent.Reload)
	var wait sync.WaitGroup
	wait.Go(func() { c.reloads(ctx, s, supervisor, reload) })
	defer wait.Wait()
	defer cancel()
	return agent.Run(ctx, config, agent.Deps{
		Logger: s.logger, Version: version, GPUs: probe.NVIDIA(), Reload: reload,
		Ready: func() { supervisor.say(sdnotify.Ready) },
		Status: func(status agent.Status) {
			supervisor.say(sdnotify.Status(status.Line()), sdnotify.Alive)
		},
		StatusEvery: supervisor.pace(),
	})
}

// reloads hands the configuration to the agent again at each SIGHUP, until ctx
// ends. One that is refused changes nothing.
func (c *agentRunCmd) reloads(ctx context.Context, s *session, supervisor *supervisor, reload chan<- agent.Reload) {
	for {
		select {
		case <-s.hangup:
		case <-ctx.Done():
			supervisor.say(sdnotify.Stopping)
			return
		}
		supervisor.say(sdnotify.Reloading())
		config, err := agent.LoadConfig(c.Config)
		if err != nil {
			s.logger.Error("configuration not taken; the one before stays in force", "error", err)
			supervisor.say(sdnotify.Ready)
			continue
		}
		done := make(chan struct{})
		select {
		case reload <- agent.Reload{Config: config, Done: func() { close(done) }}:
			select {
			case <-done:
			case <-ctx.Done():
			}
		case <-ctx.Done():
		}
		if ctx.Err() == nil {
			supervisor.say(sdnotify.Ready)
		}
	}
}
