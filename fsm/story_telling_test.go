package fsm

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"rcd/fsm/command"
	"rcd/model"
)

// tellEntry says what was answered, what happened and what is different.
func tellEntry(commands []asked, results []command.Result, events []command.Event, before, after *View) string {
	answers := make([]string, len(results))
	for i, r := range results {
		answers[i] = answerWords(r)
		if len(commands) > 1 {
			answers[i] = fmt.Sprintf("%d %s", i+1, answers[i])
		}
	}
	happened := happenings(events)
	changed := changes(before, after)
	if len(happened)+len(changed) == 0 {
		changed = []string{"as before"}
	}
	return section("answer", answers) + section("event", happened) + section("state", changed)
}

// happenings are the events as sentences. Devices that changed one after the
// other share one.
func happenings(events []command.Event) (out []string) {
	plain := func(e command.Event) bool { return e.Kind == command.EventDeviceState && e.Reason == "" }
	for i := 0; i < len(events); i++ {
		sentence := eventWords(events[i])
		for plain(events[i]) && i+1 < len(events) && plain(events[i+1]) {
			i++
			sentence = strings.Replace(sentence, " changed", ", "+events[i].Device+" changed", 1)
		}
		out = append(out, sentence)
	}
	return out
}

func answerWords(r command.Result) string {
	var about []string
	for i, j := range r.Jobs {
		words := j.ID() + " is " + j.State.String()
		if place := r.Positions[i]; place > 0 {
			words += fmt.Sprintf(" at place %d", place)
		}
		about = append(about, words)
	}
	if r.Device != nil {
		about = append(about, r.Device.ID+" is "+r.Device.State.String())
	}
	head := "accepted"
	switch {
	case r.Code == command.NotPlaced:
		head = "accepted, " + string(r.Code)
	case r.Code == command.AlreadyEnded:
		head = "noted, " + string(r.Code)
	case r.Code != command.OK:
		head = "refused, " + string(r.Code)
	}
	if r.Repeat {
		head += " before"
	}
	switch r.Kill {
	case command.KillCancelled:
		head += ", cancelled at once"
	case command.KillAsked:
		head += ", its host is asked"
	case command.KillFinalized:
		head += ", ended without its host"
	}
	if r.Message != "" {
		about = append(about, r.Message)
	}
	if len(about) == 0 {
		return head
	}
	return head + ": " + strings.Join(about, "; ")
}

// eventWords is an event as a sentence.
func eventWords(e command.Event) string {
	job, lease := model.JobID(e.Job), model.LeaseID(e.Lease)
	switch e.Kind {
	case command.EventEpoch:
		return fmt.Sprintf("%s leads in term %d", e.Reason, e.Term)
	case command.EventAgentRegistered:
		return fmt.Sprintf("the agent of %s registered as %s", e.Host, e.Instance)
	case command.EventJobQueued:
		return job + " joined the queue"
	case command.EventJobPlaced:
		return fmt.Sprintf("%s was given %s under %s", job, e.Device, lease)
	case command.EventJobRequeued:
		return fmt.Sprintf("%s went back to its place in the queue, %s is burnt", job, lease)
	case command.EventJobStarted:
		return job + " started on " + e.Host
	case command.EventJobEnded:
		return job + " ended" + because(e.Reason)
	case command.EventJobLateTruth:
		return fmt.Sprintf("%s: news of it came after its end from %s", job, e.Host)
	case command.EventKillRequested:
		return fmt.Sprintf("%s is to be ended by %s", job, e.Host)
	case command.EventLeaseEnded:
		return lease + " ended"
	case command.EventJobExtended:
		return job + " may run longer"
	case command.EventHoldSilent:
		return "the client of " + job + " is silent"
	case command.EventHoldHeard:
		return "the client of " + job + " was heard again"
	}
	return fleetEventWords(e)
}

func fleetEventWords(e command.Event) string {
	switch e.Kind {
	case command.EventDeviceState:
		if e.Reason != "" {
			return e.Device + " is in quarantine: " + e.Reason
		}
		return e.Device + " changed state"
	case command.EventDeviceRecovered:
		return e.Device + " came back by itself from " + e.Reason
	case command.EventRecoveryWithheld:
		return fmt.Sprintf("%s has used up its automatic returns and waits for a person: %s", e.Device, e.Reason)
	case command.EventLabels:
		return e.Device + " has other labels"
	case command.EventSettings:
		return "the settings changed"
	case command.EventInvariant:
		return "ALARM: the entry was undone: " + e.Reason
	case command.EventSheets:
		return e.Host + " has other usage sheets"
	case command.EventDeviceRetired:
		return e.Device + " was retired"
	case command.EventWriteOffWithheld:
		return "ALARM: nobody is written off, for too many are silent at once: " + e.Reason
	case command.EventFeature:
		return "the cluster goes to feature level " + e.Reason
	case command.EventMembers:
		return "the controllers on record changed: " + e.Reason
	case command.EventCheckpoint:
		return "a majority of the voters agree"
	case command.EventDiverged:
		return "ALARM: controller " + e.Reason + " holds another state than the majority"
	case command.EventNoMajority:
		return "ALARM: the voters differ and no majority agrees"
	}
	return fmt.Sprintf("event %d, which the storyteller does not know", e.Kind)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// changes says which rows are different, in words.
func changes(before, after *View) []string {
	out := deviceChanges(before, after)
	out = append(out, jobChanges(before, after)...)
	out = append(out, agentChanges(before, after)...)
	return append(out, clusterChanges(before, after)...)
}

func deviceChanges(before, after *View) (out []string) {
	for _, id := range merged(before.devices.tree.Keys(), after.devices.tree.Keys()) {
		old, now := before.Device(id), after.Device(id)
		if now == nil {
			out = append(out, id+" "+old.State.String()+" -> gone")
			continue
		}
		was, is := "", deviceWords(after, now)
		if old != nil {
			was = deviceWords(before, old)
		}
		switch {
		case old == nil:
			is = "new -> " + is
		case was != is && old.State != now.State:
			is = old.State.String() + " -> " + is
		case was != is:
			is = "still " + is
		}
		if was != is {
			out = append(out, id+" "+is)
		}
		if a, b := labelWords(old), labelWords(now); a != b {
			out = append(out, id+" labels: "+b)
		}
	}
	return out
}

// deviceWords is a device in words, without its labels.
func deviceWords(v *View, d *model.Device) string {
	words := d.State.String()
	if d.State == model.DeviceUnhealthy {
		words += " (" + d.Reason.String() + because(d.Detail) + ")"
	}
	if l := v.Lease(d.Lease); l != nil {
		var jobs []string
		for _, n := range l.Jobs {
			jobs = append(jobs, model.JobID(n))
		}
		words += ", lease " + model.LeaseID(l.Number)
		if !l.Begun {
			words += " not begun"
		}
		words += ", held by " + l.Holder + " for " + strings.Join(jobs, " and ")
	}
	if d.Absent {
		words += ", no longer declared by its host"
	}
	if d.MaxRuntimeS > 0 {
		words += ", ceiling " + span(d.MaxRuntimeS*1000)
	}
	return words
}

func labelWords(d *model.Device) string {
	if d == nil {
		return "none"
	}
	var words []string
	for _, l := range d.Declared {
		words = append(words, l.Key+"="+l.Value)
	}
	for _, l := range d.Detected {
		words = append(words, l.Key+"="+l.Value+" (detected)")
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

func jobChanges(before, after *View) (out []string) {
	for _, n := range merged(before.jobs.tree.Keys(), after.jobs.tree.Keys()) {
		old, now := before.Job(n), after.Job(n)
		switch {
		case old == nil:
			out = append(out, now.ID()+" new -> "+jobWords(now))
		case now == nil:
			out = append(out, old.ID()+" "+old.State.String()+" -> forgotten")
		case jobWords(old) == jobWords(now):
		case old.State != now.State:
			out = append(out, now.ID()+" "+old.State.String()+" -> "+jobWords(now))
		default:
			out = append(out, now.ID()+" still "+jobWords(now))
		}
	}
	return out
}

// jobWords is a job in words.
func jobWords(j *model.Job) string {
	words := []string{j.State.String()}
	switch {
	case j.State == model.JobQueued && j.Pinned != "":
		words[0] += " for " + j.Pinned
	case j.State == model.JobQueued:
		words[0] += " for " + j.Selector
	case j.State.Active():
		words[0] += " on " + strings.Join(j.Devices, " and ") + " under " + model.LeaseID(j.Lease)
	default:
		words = append(words, exitWords(j))
	}
	if j.Kind == model.KindHold {
		words = append(words, "a hold")
	}
	if j.Hold != 0 {
		words = append(words, "inside "+model.JobID(j.Hold))
	}
	if j.SessionS != 0 && !j.State.Terminal() {
		words = append(words, "session "+span(j.SessionS*1000))
	}
	if j.SessionSilent && !j.State.Terminal() {
		words = append(words, "its client is silent")
	}
	if j.Priority != 0 && j.State == model.JobQueued {
		words = append(words, fmt.Sprintf("priority %d", j.Priority))
	}
	if j.MaxRuntimeS > 0 && !j.State.Terminal() {
		words = append(words, "limit "+span(j.MaxRuntimeS*1000))
	}
	if j.KillRequested && !j.State.Terminal() {
		words = append(words, "to be ended ("+j.KillBy+")")
	}
	if j.LateExitCode != nil {
		words = append(words, fmt.Sprintf("late exit code %d", *j.LateExitCode))
	}
	if j.State.Terminal() {
		if j.Origin != model.OriginJob {
			words = append(words, "origin "+j.Origin.String())
		}
		if j.Output != model.OutputNone {
			words = append(words, "output "+j.Output.String())
		}
	}
	return strings.Join(words, ", ")
}

func exitWords(j *model.Job) string {
	words := "exit code not known"
	if j.ExitCode != nil {
		words = fmt.Sprintf("exit code %d", *j.ExitCode)
	}
	if j.EndReason != "" {
		words += " (" + j.EndReason + ")"
	}
	return words
}

// span is a duration for people: "1h30m", "5m", "0s".
func span(ms int64) string {
	text := (time.Duration(ms) * time.Millisecond).String()
	text = strings.TrimSuffix(text, "m0s") + map[bool]string{true: "m"}[strings.HasSuffix(text, "m0s")]
	return strings.TrimSuffix(text, "h0m") + map[bool]string{true: "h"}[strings.HasSuffix(text, "h0m")]
}

// merged returns the keys of both, sorted, each once.
func merged[K int | uint64 | string](a, b []K) []K {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}
