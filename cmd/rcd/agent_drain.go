package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"rcd/agent"
	"rcd/model"
)

type agentDrainCmd struct {
	agentConfig
	Wait       bool          `xor:"how" help:"Wait for the jobs to end by themselves (the default)."`
	Kill       bool          `xor:"how" help:"End the jobs, each with its grace."`
	Cancel     bool          `xor:"how" help:"Take a drain back."`
	Timeout    time.Duration `placeholder:"D" help:"Give up the wait after this time; the host stays drained."`
	Reason     string        `placeholder:"TEXT" help:"Why, for rc devices."`
	LeaderWait time.Duration `default:"15s" placeholder:"D" help:"How long to wait for a leader to hear of it."`
	Output     string        `short:"o" default:"text" enum:"text,json" placeholder:"text|json" help:"With json, print what is left as one line."`
}

// Help is shown by rcd agent drain --help.
func (agentDrainCmd) Help() string {
	return `Takes every device of this host out of the pool, tells the cluster, and returns
once no job is left; it fails and names the jobs while some are. It works with
or without an agent that runs, and it lasts: through restarts, until an operator
returns each device with rc clear. Ctrl-C ends the wait, not the drain.

Examples:
  rcd agent drain --reason 'swap the power supply'
  rcd agent drain --timeout 2h || rcd agent drain --kill
  rcd agent drain --cancel`
}

func (c *agentDrainCmd) Run(s *session) error {
	config, err := agent.LoadConfig(c.Config)
	if err != nil {
		return err
	}
	ctx := s.ctx
	if c.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Timeout)
		defer cancel()
	}
	if c.Cancel {
		return c.cancel(ctx, s, config)
	}
	status, err := agent.DrainHost(ctx, config, agent.DrainOptions{
		Kill: c.Kill, Reason: c.Reason, LeaderWait: max(c.LeaderWait, time.Millisecond), Logger: s.logger,
		Say: func(line string) { fmt.Fprintln(s.stderr, line) },
	})
	if c.Output == "json" {
		if printed := printLine(s.stdout, struct {
			Drained bool `json:"drained"`
			agent.Status
		}{err == nil, status}); printed != nil {
			return printed
		}
	}
	return err
}

func (c *agentDrainCmd) cancel(ctx context.Context, s *session, config agent.Config) error {
	out, err := agent.CancelDrain(ctx, config)
	if err != nil {
		return err
	}
	if len(out) == 0 {
		fmt.Fprintf(s.stdout, "host %s is not drained\n", config.Host)
		return nil
	}
	fmt.Fprintf(s.stdout, "host %s is drained no more; devices that rc devices shows out of the pool come back with:\n", config.Host)
	for _, d := range out {
		fmt.Fprintf(s.stdout, "  rc clear %s\n", model.DeviceID(config.Host, d))
	}
	return nil
}

type agentStatusCmd struct {
	agentConfig
	Output string `short:"o" default:"text" enum:"text,json" placeholder:"text|json" help:"With json, print one line."`
}

// Help is shown by rcd agent status --help.
func (agentStatusCmd) Help() string {
	return `Asks the agent on this host, not the cluster. Without an agent it tells which
jobs go on without one.

Examples:
  rcd agent status
  rcd agent status -o json`
}

func (c *agentStatusCmd) Run(s *session) error {
	config, err := agent.LoadConfig(c.Config)
	if err != nil {
		return err
	}
	status, err := agent.StatusOf(s.ctx, config)
	if err != nil {
		return err
	}
	if c.Output == "json" {
		return printLine(s.stdout, status)
	}
	return printStatus(s.stdout, status)
}

func printLine(w io.Writer, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s\n", data)
	return err
}

func printStatus(w io.Writer, s agent.Status) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	switch {
	case s.PID == 0:
		fmt.Fprintf(t, "host %s: no agent runs, %s\n", s.Host, s.Line())
	case s.LeaderHeard.IsZero():
		fmt.Fprintf(t, "host %s: agent %d (%s), no leader reached yet, %s\n", s.Host, s.PID, s.Build, s.Line())
	default:
		fmt.Fprintf(t, "host %s: agent %d (%s), leader heard %v ago, %s\n", s.Host, s.PID, s.Build, time.Since(s.LeaderHeard).Round(time.Second), s.Line())
	}
	if d := s.Drain; d != nil {
		fmt.Fprintf(t, "drained since %s%s\n", d.Since.Format(time.DateTime), note(d.Reason))
	}
	fmt.Fprintln(t, "\nDEVICE\tDRAIN")
	for _, d := range s.Devices {
		fmt.Fprintf(t, "%s\t%s%s\n", d.Name, drainWord(d.Drain), note(d.Refused))
	}
	if len(s.Jobs) > 0 {
		fmt.Fprintln(t, "\nJOB\tPHASE")
	}
	for _, j := range s.Jobs {
		fmt.Fprintf(t, "%s\t%s%s\n", j, j.Phase, note(j.Survivors))
	}
	return t.Flush()
}

func drainWord(s agent.DrainStation) string {
	switch s {
	case "":
		return "-"
	case agent.DrainUntold:
		return "drained, the cluster does not know yet"
	case agent.DrainTold:
		return "drained, its last job may still come or runs"
	}
	return "drained"
}

func note(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}
