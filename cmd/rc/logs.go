package main

type logsCmd struct {
	Job    string `arg:"" help:"Job ID, or the beginning of one (3 characters or more)."`
	Follow bool   `short:"f" help:"Go on until the job has ended."`
}

// Help is shown by rc logs --help.
func (logsCmd) Help() string {
	return `Prints stdout and stderr of the job in one, as they came. Output that exists nowhere any more is marked by a line of its own: [rc: N bytes missing: cause].

Ctrl-C ends rc logs -f and leaves the job as it is.

Examples:

    rc logs j-48213
    rc logs -f j-48213`
}

func (v *logsCmd) Run(a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	view, err := resolveJob(a.ctx, a, c, v.Job)
	if err != nil {
		return err
	}
	err = c.Logs(a.ctx, view.Job.ID, a.stdout, v.Follow)
	if err != nil && a.interrupted() {
		return a.onlyWatched("job " + view.Job.ID)
	}
	return err
}
