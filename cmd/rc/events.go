package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"rcd/client"
	"rcd/internal/yamlconf"
	"rcd/wire"
)

// eventsCmd prints as it goes, so that each format is one of lines.
type eventsCmd struct {
	After string `placeholder:"ID" help:"Begin behind this event instead of with what happens next."`
	format
}

// Help is shown by rc events --help.
func (eventsCmd) Help() string {
	return `Prints what happens to jobs and devices, a line each, until Ctrl-C, through any change of controllers. Ctrl-C says behind which event to go on. Where events may be missing there is a line that says so.

With -o json, as with jsonl, each line is one object as the API has it: a stream has no end at which an array could be closed. With -o yaml each is an item of one sequence; -o wide shows IDs, and -o name nothing else.

Examples:

    rc events
    rc events -o json
    rc events --after 1-4120-0`
}

func (v *eventsCmd) Run(a *app) error {
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	last, err := c.Events(a.ctx, client.EventsOptions{LastEventID: v.After}, func(e client.Event) error {
		return v.print(a.stdout, e)
	})
	if !a.interrupted() {
		return err
	}
	if last != "" {
		return a.leaveOff(fmt.Sprintf("interrupted behind event %s", clean(last)), "Go on: rc events --after "+clean(last))
	}
	return a.onlyWatched("the cluster")
}

// print prints one event.
func (v *eventsCmd) print(w io.Writer, e client.Event) error {
	id := firstOf(e.ID, "-")
	switch v.Output {
	case formatJSON, formatJSONL:
		return printJSON(w, e, false)
	case formatYAML:
		return yamlconf.Encode(w, []client.Event{e})
	case formatName:
		_, err := fmt.Fprintln(w, clean(id))
		return err
	case formatWide:
		_, err := fmt.Fprintln(w, clean(id)+"  "+eventLine(e))
		return err
	}
	_, err := fmt.Fprintln(w, eventLine(e))
	return err
}

// eventLine prints one event for people: when, what, to whom, and the state
// after it.
func eventLine(e client.Event) string {
	if e.Reset {
		text := "-  events may be missing before here; look at the state: rc ps, rc devices"
		var why wire.EventReset
		if json.Unmarshal(e.Payload, &why) == nil && why.Reason != "" {
			text += " (" + clean(why.Reason) + ")"
		}
		return text
	}
	text := e.At.UTC().Format(time.RFC3339) + "  " + clean(firstOf(e.Name, e.Kind))
	var job wire.JobEvent
	if json.Unmarshal(e.Payload, &job) == nil && job.JobID != "" {
		// One that its entry also forgot has no state.
		return strings.TrimRight(text+"  "+clean(job.JobID+" "+withNote(job.State, job.Reason)), " ")
	}
	var devices []wire.DeviceView
	if json.Unmarshal(e.Payload, &devices) == nil {
		for _, d := range devices {
			text += "  " + clean(d.Device.ID+" "+withNote(d.Device.State, stateNote(d, whole)))
		}
		return text
	}
	return strings.TrimRight(text+"  "+clean(e.DeviceID), " ")
}
