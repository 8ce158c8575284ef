package main

import (
	"fmt"

	"rcd/wire"
)

type retireCmd struct {
	Device string `arg:"" optional:"" help:"Device ID, host:name."`
	Host   string `placeholder:"HOST" help:"Retire a host that is gone, with all its devices, instead."`
	Yes    bool   `help:"Do it; without, nothing is done."`
}

// Help is shown by rc retire --help.
func (retireCmd) Help() string {
	return `A retired device is gone from the fleet: jobs that wait for it end, the history of its jobs stays. One that is held is refused, and so is a host whose agent is in contact. A host that still declares a device brings it back when its agent registers; take it out of the agent's configuration first. It needs an admin token.

Examples:

    rc retire box:gpu0 --yes
    rc retire --host box --yes`
}

func (v *retireCmd) Run(a *app) error {
	refuse := func(text string) error { return &usageError{text: text, verb: "retire"} }
	switch {
	case (v.Device == "") == (v.Host == ""):
		return refuse("name a device, or a host with --host")
	case !v.Yes:
		return refuse("this takes " + firstOf(v.Device, v.Host) + " out of the fleet and ends what waits for it; add --yes to do it")
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	var done *wire.Retired
	if v.Host != "" {
		done, err = c.RetireHost(a.ctx, v.Host)
	} else {
		done, err = c.Retire(a.ctx, v.Device)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "retired %s\n", done.Retired)
	a.say("%s", clean(done.Note))
	return nil
}
