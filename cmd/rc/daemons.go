package main

import "strings"

// The ancestor's one binary ran the daemons, too. Here they are rcd's, so that
// rc stays what people can copy anywhere.

type serveCmd struct {
	Args []string `arg:"" optional:"" passthrough:"" help:"Flags of the earlier rc."`
}

// Help is shown by rc serve --help.
func (serveCmd) Help() string {
	return `Controllers are run by rcd. Prints the command to use and exits with 2.

Example:

    rc serve --addr :8080 --data /var/lib/rc`
}

func (v *serveCmd) Run(a *app) error {
	http, _ := oldFlag(v.Args, "--addr")
	data, _ := oldFlag(v.Args, "--data")
	a.say("controllers are run by rcd; use: rcd serve --id c1 --listen HOST:7401 --http %s --data %s --bootstrap-expect 1", quote(firstOf(http, ":8080")), quote(firstOf(data, "/var/lib/rcd")))
	a.say("it reads its tokens from RC_TOKENS and the controllers' secret from RCD_CLUSTER_KEY; see: rcd serve --help")
	return exitError(exitUsage)
}

type workerCmd struct {
	Args []string `arg:"" optional:"" passthrough:"" help:"Flags of the earlier rc."`
}

// Help is shown by rc worker --help.
func (workerCmd) Help() string {
	return `Device hosts run the agent of rcd. Prints the command to use and exits with 2.

Example:

    rc worker --config /etc/rc/worker.yaml`
}

func (v *workerCmd) Run(a *app) error {
	file, ok := oldFlag(v.Args, "--config")
	if !ok {
		file, _ = oldFlag(v.Args, "-c")
	}
	a.say("device hosts run the agent, which is rcd's; use: rcd agent --config %s", quote(firstOf(file, "/etc/rc/agent.yaml")))
	a.say("see: rcd agent --help")
	return exitError(exitUsage)
}

// oldFlag returns the value of a flag among words that were not parsed.
func oldFlag(words []string, name string) (string, bool) {
	for i, word := range words {
		if value, ok := strings.CutPrefix(word, name+"="); ok {
			return value, true
		}
		if word == name && i+1 < len(words) {
			return words[i+1], true
		}
	}
	return "", false
}
