package main

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

type helpCmd struct {
	Topic []string `arg:"" optional:"" help:"A verb, or: agents."`
}

// Help is shown by rc help --help.
func (helpCmd) Help() string {
	return `rc help agents prints a guide for programs that lease devices on their own, AI agents for example.

Examples:

    rc help
    rc help run
    rc help agents`
}

// topicAgents is the one topic of rc help that is no verb.
const topicAgents = "agents"

func (v *helpCmd) Run(a *app, parsed *kong.Context) error {
	if len(v.Topic) == 1 && v.Topic[0] == topicAgents {
		text, err := guide(parsed.Model)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(a.stdout, text)
		return err
	}
	// Prints the help of the verb and exits.
	if _, err := parsed.Kong.Parse(append(v.Topic, "--help")); err != nil {
		return &usageError{text: fmt.Sprintf("there is no help on %q", strings.Join(v.Topic, " "))}
	}
	return nil
}
