package main

import "time"

type execCmd struct {
	Hold        string        `arg:"" help:"Hold to run in: its ID, the whole of it, or the device that you hold, host:name."`
	TTY         bool          `help:"Run on a terminal that is joined to this one; without a command, a shell."`
	NoStdin     bool          `short:"n" help:"Leave this stdin alone; the command finds its own empty."`
	Cwd         string        `placeholder:"DIR" help:"Working directory on the device host."`
	Env         []string      `placeholder:"K=V" sep:"none" help:"Set a variable for the command; may be repeated."`
	As          string        `placeholder:"NAME" help:"Submitter, instead of RC_SUBMITTER; the hold's own."`
	MaxRuntime  time.Duration `placeholder:"D" help:"End the command after this time, e.g. 90m."`
	IdleTimeout time.Duration `placeholder:"D" help:"End the command after this time without output."`
	Timeout     time.Duration `placeholder:"D" help:"Give up if the hold is still queued after this time."`
	NoWait      bool          `help:"Fail at once if the hold is still queued."`
	Merge       bool          `help:"Print the command's stderr on stdout, too, in the order it came."`
	// DetachTimeout is as model.DetachTimeout reads it.
	DetachTimeout string   `placeholder:"D" help:"With --tty: end the command when nobody has been attached for this time (10m); 0 is never."`
	Command       []string `arg:"" optional:"" passthrough:"" help:"Command and arguments, after --."`
}

// Help is shown by rc exec --help.
func (execCmd) Help() string {
	return `Runs a command on the device of a hold, beside whatever else runs in it, as ssh would: its stdin is this one if that is a pipe or a file, its stdout and stderr come out apart, and rc exits with its code. A stdin that is a terminal or /dev/null, or closed, is left alone; -n leaves any alone. Says nothing of its own while all goes well.

With --tty the command is on a terminal that is joined to this one; without a command that is the host's bash, or its sh. Type ~. at the beginning of a line to leave it running (~~ is a ~).

A hold that is still queued is waited for. Ctrl-C ends the command and leaves the hold as it is; the end of the hold ends every command in it. For work that is to go on without this rc there is rc run --in.

Examples:

    rc exec j-48213 -- nvidia-smi
    rc exec box:gpu0 -- python train.py
    tar c . | rc exec j-48213 --cwd /work -- tar x
    rc exec --tty j-48213
    rc exec --tty j-48213 -- python`
}

func (v *execCmd) Run(a *app) error {
	in := runCmd{
		In: v.Hold, exec: true, noStdin: v.NoStdin, TTY: v.TTY, Cwd: v.Cwd, Env: v.Env, As: v.As,
		MaxRuntime: v.MaxRuntime, IdleTimeout: v.IdleTimeout, Timeout: v.Timeout, NoWait: v.NoWait, Merge: v.Merge,
		DetachTimeout: v.DetachTimeout, Command: v.Command,
	}
	return in.Run(a)
}
