package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"rcd/wire"
)

type describeCmd struct {
	Device string `arg:"" help:"Device ID, host:name, or the beginning of one (3 characters or more); or the ID of a job or a hold."`
	format
}

// Help is shown by rc describe --help.
func (describeCmd) Help() string {
	return `Shows all that is known of one device: who has it, why it is out of the pool and what brings it back, its labels, the usage sheet that its host has written for those who use it, and its last jobs, which -o wide shows in full. Of a job, what became of it; of a hold also what runs inside and has run.

Examples:

    rc describe box:gpu0
    rc describe box:gpu0 -o json
    rc describe j-48213`
}

func (v *describeCmd) Run(a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	if jobID.MatchString(v.Device) {
		return v.job(a, c)
	}
	id, err := resolveDevice(a, c, v.Device)
	if err != nil {
		return err
	}
	d, err := c.Describe(a.ctx, id)
	if err != nil {
		return err
	}
	return v.show(a.stdout, d, d.Device.ID, func() error {
		return printDevice(a.stdout, d, a.now(), v.Output == formatWide)
	})
}

// printDevice prints what is known of a device, in blocks; now is for jobs that
// run.
func printDevice(w io.Writer, d *wire.Describe, now time.Time, wide bool) error {
	holder := "free"
	if d.JobID != "" {
		holder = fmt.Sprintf("held by %s  job %s, running %s", clean(d.Holder), d.JobID, duration(time.Duration(d.ElapsedSeconds)*time.Second))
	}
	fmt.Fprintf(w, "%s  %s\n%s\nheartbeat %s\n", clean(d.Device.ID), d.Device.State, holder, secondsAgo(d.HeartbeatAgeSeconds))
	printOutOfPool(w, d)
	if len(d.Labels) > 0 {
		fmt.Fprintln(w, "\nLABELS")
		t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, l := range d.Labels {
			fmt.Fprintf(t, "  %s\t%s\t%s\n", clean(l.Key+"="+l.Value), l.Source, secondsAgo(d.LabelAgeSeconds[l.Key+"/"+l.Source]))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	printSheet(w, d)
	if len(d.RecentJobs) == 0 {
		return nil
	}
	fmt.Fprintln(w, "\nRECENT JOBS")
	recent := jobListing(now)
	recent.columns = slices.DeleteFunc(recent.columns, func(c column[wire.Job]) bool {
		return c.heading == "DEVICE" // they are all of this one
	})
	return recent.table(w, d.RecentJobs, wide)
}

// printOutOfPool says why a device cannot be had, and what could change that.
func printOutOfPool(w io.Writer, d *wire.Describe) {
	if d.NotDeclared {
		fmt.Fprintln(w, "out of the pool: no longer declared by its host")
	}
	if d.QuarantineReason == "" {
		return
	}
	reason := d.QuarantineReason
	if d.QuarantineCategory != "" && d.QuarantineCategory != reason {
		reason = d.QuarantineCategory + ": " + reason
	}
	fmt.Fprintf(w, "out of the pool: %s\n", clean(reason))
	if d.ProofDetail != "" {
		fmt.Fprintf(w, "last proof of its host: %s\n", clean(d.ProofDetail))
	}
	window := duration(time.Duration(d.AutomaticReturnsWindow) * time.Second)
	switch {
	case d.ManualClear:
		fmt.Fprintf(w, "comes back by hand only, its host wants it so: rc clear %s\n", d.Device.ID)
	case d.QuarantineCategory == "fault" || d.QuarantineCategory == "unrecorded":
		fmt.Fprintf(w, "comes back by hand only: rc clear %s\n", d.Device.ID)
	case d.AutomaticReturnsWindow == 0: // a controller of an older version
	case d.AutomaticReturnsLeft == 0:
		fmt.Fprintf(w, "came back by itself %d times within %s; now it waits for a person: rc clear %s\n", len(d.AutomaticReturns), window, d.Device.ID)
	default:
		fmt.Fprintf(w, "comes back by itself once its host proves that nothing is left on it, %d more times within %s\n", d.AutomaticReturnsLeft, window)
	}
}

// printSheet prints what the device's host says about its use. Its lines stay
// lines.
func printSheet(w io.Writer, d *wire.Describe) {
	if d.Sheet == "" {
		return
	}
	note := "device note"
	if d.SheetIsHostWide {
		note = "host-wide note"
	}
	if d.SheetAgeSeconds != nil {
		note += ", updated " + secondsAgo(*d.SheetAgeSeconds)
	}
	fmt.Fprintf(w, "\nUSAGE SHEET  %s\n", note)
	for line := range strings.SplitSeq(strings.TrimRight(d.Sheet, "\n"), "\n") {
		fmt.Fprintln(w, strings.TrimRight("  "+clean(strings.TrimSuffix(line, "\r")), " "))
	}
}

// secondsAgo prints an age. One below zero, of a clock that was wrong, says so.
func secondsAgo(seconds int64) string {
	if seconds < 0 {
		return age(-seconds) + " in the future"
	}
	return age(seconds) + " ago"
}
