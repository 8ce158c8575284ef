package main

import (
	"slices"
	"strings"
	"time"

	"rcd/client"
	"rcd/wire"
)

// silentAfterSeconds is the silence of a host from which the table says so.
const silentAfterSeconds = 30

type devicesCmd struct {
	Select string     `placeholder:"SEL" help:"Only devices that this selector matches."`
	Output bareFormat `short:"o" placeholder:"FORMAT" help:"Output format: text or json; -o alone means json."`
	JSON   bool       `name:"json" hidden:"" help:"The same as -o json."`
}

// Help is shown by rc devices --help.
func (devicesCmd) Help() string {
	return `A device in quarantine shows why, and one whose host is silent for how long.

Examples:

    rc devices
    rc devices --select 'vram>=40G'
    rc devices -o json`
}

func (v *devicesCmd) Run(a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	devices, err := c.Devices(a.ctx)
	if err != nil {
		return err
	}
	if v.Select != "" {
		matching, err := c.Explain(a.ctx, client.ExplainOptions{Selector: v.Select})
		if err != nil {
			return err
		}
		devices = slices.DeleteFunc(devices, func(d wire.DeviceView) bool {
			return !slices.Contains(matching.Matching, d.Device.ID)
		})
	}
	if v.JSON || v.Output == formatJSON {
		return printJSON(a.stdout, devices, true)
	}
	var rows [][]string
	for _, d := range devices {
		elapsed := ""
		if d.JobID != "" {
			elapsed = duration(time.Duration(d.ElapsedSeconds) * time.Second)
		}
		rows = append(rows, []string{
			d.Device.ID, withNote(d.Device.State, stateNote(d)), withNote(d.Holder, d.Reason), elapsed, commandLine(d.Command),
		})
	}
	return table(a.stdout, "DEVICE|STATE|HOLDER|ELAPSED|COMMAND", rows)
}

// stateNote says why a device cannot be had.
func stateNote(d wire.DeviceView) string {
	var notes []string
	switch {
	case d.QuarantineCategory != "" && d.QuarantineCategory != d.QuarantineReason:
		// Only the category says whether it may come back by itself.
		notes = append(notes, d.QuarantineCategory+": "+d.QuarantineReason)
	case d.QuarantineReason != "":
		notes = append(notes, d.QuarantineReason)
	}
	if d.NotDeclared {
		notes = append(notes, "no longer declared by its host")
	}
	if d.HeartbeatAgeSeconds > silentAfterSeconds {
		notes = append(notes, "no contact "+age(d.HeartbeatAgeSeconds))
	}
	return strings.Join(notes, ", ")
}
