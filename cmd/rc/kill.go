package main

type killCmd struct {
	Job string `arg:"" help:"Job ID, the whole of it."`
	As  string `placeholder:"NAME" help:"Submitter to act as; only the job's own may end it, and an admin."`
}

// Help is shown by rc kill --help.
func (killCmd) Help() string {
	return `A queued job is cancelled at once. The end of a running one takes as long as its host needs to stop every process of it. The ID has to be whole: its beginning could be another job's.

Example:

    rc kill j-48213`
}

func (v *killCmd) Run(a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Kill(a.ctx, v.Job, firstOf(v.As, a.conf.submitter)); err != nil {
		return err
	}
	a.say("kill requested for %s", v.Job)
	return nil
}
