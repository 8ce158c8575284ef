package main

import "fmt"

type whoamiCmd struct{ format }

// Help is shown by rc whoami --help.
func (whoamiCmd) Help() string {
	return `Example:

    rc whoami`
}

func (v *whoamiCmd) Run(a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	role, err := c.Whoami(a.ctx)
	if err != nil {
		return err
	}
	who := map[string]string{"role": role, "submitter": a.conf.submitter}
	return v.show(a.stdout, who, a.conf.submitter, func() error {
		_, err := fmt.Fprintf(a.stdout, "role       %s\nsubmitter  %s\n", role, clean(a.conf.submitter))
		return err
	})
}
