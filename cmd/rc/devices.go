package main

import (
	"io"
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
	Output bareFormat `short:"o" placeholder:"FORMAT" help:"Output format: table, wide, json, jsonl, yaml or name; -o alone means json."`
	JSON   bool       `name:"json" hidden:"" help:"The same as -o json."`
	watching
}

// Help is shown by rc devices --help.
func (devicesCmd) Help() string {
	return `A device in quarantine shows why, and one whose host is silent for how long.

Examples:

    rc devices
    rc devices --select 'vram>=40G'
    rc devices -o wide
    rc devices --watch
    rc devices -o json
    rc devices --select 'vram>=40G' -o name`
}

func (v *devicesCmd) Run(a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	if v.JSON {
		v.Output = formatJSON
	}
	return v.show(a, "the devices", string(v.Output), func(since client.Since) (func(io.Writer) error, uint64, error) {
		devices, index, err := c.DevicesSince(a.ctx, since)
		if err != nil {
			return nil, 0, err
		}
		if v.Select != "" {
			matching, err := c.Explain(a.ctx, client.ExplainOptions{Selector: v.Select})
			if err != nil {
				return nil, 0, err
			}
			devices = slices.DeleteFunc(devices, func(d wire.DeviceView) bool {
				return !slices.Contains(matching.Matching, d.Device.ID)
			})
		}
		return func(w io.Writer) error { return deviceListing.print(w, string(v.Output), devices, nil) }, index, nil
	})
}

var deviceListing = listing[wire.DeviceView]{
	name: func(d wire.DeviceView) string { return d.Device.ID },
	columns: []column[wire.DeviceView]{
		{"DEVICE", allTables, func(d wire.DeviceView) string { return d.Device.ID }},
		{"STATE", narrowOnly, func(d wire.DeviceView) string { return withNote(d.Device.State, stateNote(d, brief)) }},
		{"STATE", wideOnly, func(d wire.DeviceView) string { return withNote(d.Device.State, stateNote(d, whole)) }},
		{"HOLDER", narrowOnly, func(d wire.DeviceView) string { return withNote(d.Holder, brief(d.Reason)) }},
		{"HOLDER", wideOnly, func(d wire.DeviceView) string { return withNote(d.Holder, d.Reason) }},
		{"ELAPSED", allTables, func(d wire.DeviceView) string { return elapsed(d) }},
		{"JOB", wideOnly, func(d wire.DeviceView) string { return d.JobID }},
		{"HEARD", wideOnly, func(d wire.DeviceView) string { return age(d.HeartbeatAgeSeconds) + " ago" }},
		{"LABELS", wideOnly, func(d wire.DeviceView) string { return labels(d.Device.Labels) }},
		{"COMMAND", narrowOnly, func(d wire.DeviceView) string { return commandLine(d.Command) }},
		{"COMMAND", wideOnly, func(d wire.DeviceView) string { return wholeCommand(d.Command) }},
	},
}

// elapsed returns how long a device has been held, "" if it is free.
func elapsed(d wire.DeviceView) string {
	if d.JobID == "" {
		return ""
	}
	return duration(time.Duration(d.ElapsedSeconds) * time.Second)
}

// labels prints those that count: a detected one comes before a declared one.
func labels(all []wire.Label) string {
	values := map[string]string{}
	for _, l := range all {
		if _, there := values[l.Key]; !there || l.Source == "detected" {
			values[l.Key] = l.Value
		}
	}
	var pairs []string
	for key, value := range values {
		pairs = append(pairs, key+"="+value)
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

// stateNote says why a device cannot be had; show is brief or whole.
func stateNote(d wire.DeviceView, show func(string) string) string {
	var notes []string
	switch {
	case d.QuarantineCategory != "" && d.QuarantineCategory != d.QuarantineReason:
		// Only the category says whether it may come back by itself.
		notes = append(notes, d.QuarantineCategory+": "+show(d.QuarantineReason))
	case d.QuarantineReason != "":
		notes = append(notes, show(d.QuarantineReason))
	}
	if d.NotDeclared {
		notes = append(notes, "no longer declared by its host")
	}
	if d.HeartbeatAgeSeconds > silentAfterSeconds {
		notes = append(notes, "no contact "+age(d.HeartbeatAgeSeconds))
	}
	return strings.Join(notes, ", ")
}
