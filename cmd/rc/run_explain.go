package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"rcd/client"
	"rcd/wire"
)

// explain prints what --select would find, and when a job would start.
func (v *runCmd) explain(a *app, c *client.Client) error {
	e, err := c.Explain(a.ctx, client.ExplainOptions{Selector: v.Select, MaxRuntime: v.MaxRuntime})
	if err != nil {
		return err
	}
	free := map[string]bool{}
	for _, id := range e.Free {
		free[id] = true
	}
	fmt.Fprintf(a.stdout, "selector: %s\nmatching (%d):\n", e.Selector, len(e.Matching))
	for _, id := range e.Matching {
		state := "busy"
		if free[id] {
			state = "free"
		}
		fmt.Fprintf(a.stdout, "  %s  %s\n", id, state)
	}
	if _, err = fmt.Fprintf(a.stdout, "free: %d/%d\nqueue depth: %d\n", len(e.Free), len(e.Matching), e.QueueDepth); err != nil || e.Tolerating == nil {
		return err // without more to say, the controller is of an older version
	}
	if e.MaxRuntimeSeconds > 0 {
		fmt.Fprintf(a.stdout, "allowing %s: %d/%d\n", duration(time.Duration(e.MaxRuntimeSeconds)*time.Second), len(e.Tolerating), len(e.Matching))
	}
	if err := v.explainDevices(a, e); err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "would start: %s\n", wouldStart(e))
	for _, r := range e.Reasons {
		fmt.Fprintf(a.stdout, "why not now: %s\n", clean(r.Message))
	}
	return nil
}

func (v *runCmd) explainDevices(a *app, e *wire.Explain) error {
	if len(e.Devices) == 0 {
		return nil
	}
	fmt.Fprintln(a.stdout, "devices, in the order in which they come free:")
	t := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	for _, d := range e.Devices {
		fmt.Fprintf(t, "  %s\t%s\t%s\n", d.DeviceID, d.State, clean(firstOf(deviceNote(d), "-")))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if e.MoreDevices > 0 {
		fmt.Fprintf(a.stdout, "  and %d more\n", e.MoreDevices)
	}
	return nil
}

// deviceNote says what keeps a device from being had.
func deviceNote(d wire.ExplainedDevice) string {
	var notes []string
	if d.JobID != "" {
		note := fmt.Sprintf("held by %s with %s", withNote(d.Holder, d.Reason), d.JobID)
		switch {
		case d.PastLimit:
			note += ", past its limit"
		case d.LatestEnd != nil:
			note += ", until " + d.LatestEnd.UTC().Format(time.RFC3339) + " at the latest"
		case d.State == "busy":
			note += ", without a limit"
		}
		notes = append(notes, note)
	}
	if d.QuarantineReason != "" {
		notes = append(notes, withNote(d.QuarantineReason, d.Detail))
	}
	if d.NotDeclared {
		notes = append(notes, "no longer declared by its host")
	}
	if !d.Tolerates {
		notes = append(notes, "allows "+duration(time.Duration(d.CeilingSeconds)*time.Second)+" at most")
	}
	return strings.Join(notes, "; ")
}

func wouldStart(e *wire.Explain) string {
	switch {
	case len(e.Reasons) == 0:
		return "at once"
	case e.ExpectedStart.Latest == nil:
		return "cannot be said. " + clean(e.ExpectedStart.Note)
	}
	text := e.ExpectedStart.Latest.UTC().Format(time.RFC3339) + " at the latest"
	if e.ExpectedStart.Earliest != nil {
		text += ", in " + duration(e.ExpectedStart.Latest.Sub(*e.ExpectedStart.Earliest))
	}
	return text
}
