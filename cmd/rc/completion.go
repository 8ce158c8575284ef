package main

import (
	"embed"
	"fmt"
)

//go:embed completion
var completionScripts embed.FS

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

// Help is shown by rc completion --help.
func (completionCmd) Help() string {
	return `Completes verbs, flags and their values, and with the cluster's word, given at most a second, IDs of jobs and devices.

Examples:

    rc completion bash > ~/.local/share/bash-completion/completions/rc
    rc completion zsh > ~/.zfunc/_rc
    rc completion fish > ~/.config/fish/completions/rc.fish`
}

func (v *completionCmd) Run(a *app) error {
	script, err := completionScripts.ReadFile("completion/rc." + v.Shell)
	if err != nil {
		return fmt.Errorf("read the script of %s: %w", v.Shell, err)
	}
	_, err = a.stdout.Write(script)
	return err
}
