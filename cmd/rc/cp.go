package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"rcd/client"
	"rcd/model"
)

type cpCmd struct {
	Source       string        `arg:"" name:"src" help:"What to copy: a path here, or host:name:path on the host of a device."`
	Destination  string        `arg:"" name:"dst" help:"Where to; with a / at its end the directory to copy into, else the new name."`
	As           string        `placeholder:"NAME" help:"Submitter, instead of RC_SUBMITTER."`
	Timeout      time.Duration `placeholder:"D" help:"Give up when nothing has moved for this time (5m); the whole may take as long as it takes."`
	OutsideLinks bool          `help:"Let a fetched directory have links that lead out of it."`
	Quiet        bool          `short:"q" help:"Say nothing of how far it is."`
	format
}

// Help is shown by rc cp --help.
func (cpCmd) Help() string {
	return `Copies a file, a directory or a link to the host of a device, or from there. Exactly one side is host:name:path; a path that is not absolute begins in the home directory of jobs. Permission bits, times and links are kept, owners are not, and links are not followed.

It runs as a job under a lease of the device, and does not wait for one: a device that another job has is busy (75). In a device that you hold it runs inside the hold.

What arrives is collected beside the destination and put there by a rename once its checksum is right. A copy that was cut off, whatever did it, goes on where it was if the same command is given again and the source is what it was. A controller that dies costs a line. Ctrl-C ends the job and says what is kept.

Examples:

    rc cp model.bin box:gpu0:/data/
    rc cp src/ box:gpu0:work/src
    rc cp box:gpu0:work/out.log .
    rc cp -q -o json box:gpu0:/data/run-7 results`
}

// splitRemote takes host:name:path apart. What stands before the first slash
// says whether there is a device, and its last colon ends that. Empty: a path
// on this machine.
func splitRemote(arg string) (device, path string) {
	head, _, _ := strings.Cut(arg, "/")
	i := strings.LastIndexByte(head, ':')
	if i < 0 {
		return "", arg
	}
	if host, _ := model.SplitDeviceID(arg[:i]); host == "" {
		return "", arg
	}
	return arg[:i], arg[i+1:]
}

// copied is what rc cp -o json prints.
type copied struct {
	DeviceID    string  `json:"device_id"`
	JobID       string  `json:"job_id"`
	Hold        string  `json:"hold,omitempty"`
	Destination string  `json:"destination"`
	Bytes       int64   `json:"bytes"`
	ResumedFrom int64   `json:"resumed_from"` // these had arrived before
	Seconds     float64 `json:"seconds"`
	SHA256      string  `json:"sha256"`
}

func (v *cpCmd) Run(a *app) error {
	refuse := func(text string) error { return &usageError{text: text, verb: "cp"} }
	from, source := splitRemote(v.Source)
	to, destination := splitRemote(v.Destination)
	switch {
	case (from == "") == (to == ""):
		return refuse("one side, and only one, is on a device: host:name:path (a local path with colons begins with ./)")
	case v.Source == "" || v.Destination == "" || from != "" && source == "":
		return refuse("a path is empty")
	case v.Timeout < 0 || v.Timeout > 0 && v.Timeout < time.Second:
		return refuse("--timeout must be at least 1s")
	}
	// Before the client, which tells of controllers on the same stderr.
	show := newMeter(a, v.Quiet)
	defer show.close()
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	o := client.CopyOptions{
		DeviceID: from + to, Local: destination, Remote: source, Submitter: firstOf(v.As, a.conf.submitter),
		Silence: v.Timeout, OutsideLinks: v.OutsideLinks, Progress: show.see, Note: func(line string) { a.say("%s", line) },
	}
	work := c.CopyFrom
	if to != "" {
		o.Local, o.Remote, work = source, destination, c.CopyTo
		if _, err := os.Lstat(source); errors.Is(err, fs.ErrNotExist) {
			return absentError("there is no " + source + " to copy")
		}
	}
	result, err := work(a.ctx, o)
	show.close()
	if err != nil {
		return v.failed(a, err)
	}
	out := copied{DeviceID: o.DeviceID, JobID: result.JobID, Hold: result.Hold, Destination: result.Path, Bytes: result.Bytes,
		ResumedFrom: result.ResumedFrom, Seconds: result.Took.Seconds(), SHA256: result.SHA256}
	return v.show(a.stdout, out, result.Path, func() error {
		if !v.Quiet {
			before := ""
			if result.ResumedFrom > 0 {
				before = fmt.Sprintf(", %s of it had arrived before", bytesText(result.ResumedFrom))
			}
			a.say("copied to %s: %s in %s%s", clean(result.Path), bytesText(result.Bytes), result.Took.Round(100*time.Millisecond), before)
		}
		return nil
	})
}

// failed ends rc after a copy that has not succeeded, with what it leaves.
func (v *cpCmd) failed(a *app, err error) error {
	var (
		begun *client.CopyError
		held  *client.HeldError
		left  []string
	)
	if errors.As(err, &begun) {
		if begun.Running {
			left = append(left, fmt.Sprintf("job %s could not be seen to end. End it: rc kill %s", begun.JobID, begun.JobID))
		}
		if begun.Kept != "" {
			left = append(left, "What has arrived is kept in "+clean(begun.Kept)+"; the same command goes on from there")
		}
	}
	switch {
	case a.interrupted():
		message := "interrupted; nothing was copied"
		if begun != nil {
			message = "interrupted; job " + begun.JobID + " is ended"
			if begun.Running {
				message = "interrupted"
			}
		}
		return a.leaveOff(message, strings.Join(left, ". "))
	case errors.As(err, &held):
		return busyError(clean(held.Error()))
	}
	for _, line := range left {
		a.say("%s", line)
	}
	if errors.Is(err, client.ErrCopySilent) {
		a.report(failure{Code: codeDeadline, Message: err.Error()}, err.Error())
		return exitError(exitDeadline)
	}
	return err
}
