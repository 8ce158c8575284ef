package main

import "fmt"

type clearCmd struct {
	Device string `arg:"" help:"Device ID, host:name."`
}

// Help is shown by rc clear --help.
func (clearCmd) Help() string {
	return `Clear a device only when you know that what put it into quarantine is over: nothing else checks. It needs an admin token.

Example:

    rc clear box:gpu0`
}

func (v *clearCmd) Run(a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Clear(a.ctx, v.Device); err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "cleared %s\n", v.Device)
	return nil
}
