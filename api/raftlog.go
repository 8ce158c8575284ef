package api

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// Bounds of what one line of the log shows.
const (
	maxShownCommand = 200 // bytes of a job's command
	maxShownText    = 80  // bytes of any other text
	maxShownID      = 12  // bytes of a request ID
)

// kindCommand is the LogEntry.Kind of entries that hold commands.
const kindCommand = "command"

// entryLines returns one line for each command of an entry of the Raft log, in
// the entry's order, or one line for an entry that has none. What may be secret
// is left out: of an environment only how many values it has is shown.
func entryLines(entry LogEntry, committed bool) []wire.RaftEntry {
	line := wire.RaftEntry{Index: entry.Index, Term: entry.Term, Kind: entry.Kind, Summary: shown(entry.Summary, maxShownCommand), Committed: committed}
	if !entry.At.IsZero() {
		line.Time = entry.At.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	}
	if entry.Kind != kindCommand {
		return []wire.RaftEntry{line}
	}
	decoded, err := command.DecodeEntry(entry.Data)
	if err != nil {
		line.Summary = fmt.Sprintf("cannot be decoded (%d bytes): %v", len(entry.Data), err)
		return []wire.RaftEntry{line}
	}
	if line.Time == "" && decoded.Stamp != 0 {
		line.Time = time.Unix(0, decoded.Stamp).UTC().Format("2006-01-02T15:04:05.000Z07:00")
	}
	var lines []wire.RaftEntry
	for i, raw := range decoded.Commands {
		one := line
		one.Position = i
		cmd, err := command.Decode(raw)
		if err != nil {
			one.Summary = fmt.Sprintf("cannot be decoded (%d bytes): %v", len(raw), err)
		} else {
			one.Kind, one.Summary = cmd.Kind.String(), summary(cmd)
		}
		if decoded.Term != entry.Term {
			one.Summary += fmt.Sprintf(" (proposed in term %d)", decoded.Term)
		}
		lines = append(lines, one)
	}
	if lines == nil {
		line.Summary = "no commands"
		lines = []wire.RaftEntry{line}
	}
	return lines
}

// summary says in one line what a command asks.
func summary(cmd command.Command) string {
	text := "of a kind that this version does not know"
	switch b := cmd.Body.(type) {
	case *command.EpochBegin:
		text = "by " + shown(b.Node, maxShownText)
		if b.MedianMS != 0 {
			text += " median-clock=" + time.UnixMilli(b.MedianMS).UTC().Format(time.RFC3339)
		}
	case *command.AgentRegister:
		text = registerSummary(b)
	case *command.JobEnqueue:
		text = enqueueSummary(b)
	case *command.JobStart:
		text = fmt.Sprintf("%s on %s", refSummary(b.JobRef), shown(b.Host, maxShownText))
	case *command.JobFinish:
		text = finishSummary(b)
	case *command.JobKill:
		text = model.JobID(b.Job) + " by " + quoted(b.By)
		if b.Admin {
			text += " as admin"
		}
		if b.Detached {
			text += " host-detached"
		}
	case *command.DeviceClear:
		text = shown(b.Device, maxShownText)
	case *command.LabelsReplace, *command.SheetPut, *command.Schedule, *command.LeaseAllocate,
		*command.LeaseRelease, *command.LeaseExtend, *command.DeviceFault, *command.DeviceRetire:
		text = fleetSummary(b)
	case *command.Sweep:
		text = sweepSummary(b)
	case *command.JobPrune:
		text = fmt.Sprintf("at most %d rows", b.Limit)
	case *command.ConfigSet:
		var set []string
		for _, change := range b.Settings {
			set = append(set, fmt.Sprintf("%s=%d", shown(change.Name, maxShownText), change.Value))
		}
		text = strings.Join(set, " ")
	case *command.Recover, *command.MemberPut, *command.MemberRemove, *command.FeatureRaise, *command.Checkpoint:
		text = leaderSummary(b)
	}
	if cmd.Request.ID != "" {
		text += " request=" + shown(strings.TrimPrefix(strings.TrimPrefix(cmd.Request.ID, "h:"), "k:"), maxShownID)
	}
	return text
}

func registerSummary(b *command.AgentRegister) string {
	text := fmt.Sprintf("host %s instance %s devices %d jobs %d", shown(b.Host, maxShownText), shown(b.Instance, maxShownID), len(b.Devices), len(b.Jobs))
	switch {
	case b.Proof.Isolated:
		text += " proof=isolated"
	case b.Proof.SurvivorsFound:
		text += " survivors: " + shown(b.Proof.Detail, maxShownText)
	case b.Proof.SurvivorsChecked:
		text += " proof=no-survivors"
	}
	if b.RequireManualClear {
		text += " manual-clear"
	}
	return text
}

func enqueueSummary(b *command.JobEnqueue) string {
	if len(b.Jobs) == 0 {
		return "no jobs"
	}
	j := b.Jobs[0]
	text := ""
	if len(b.Jobs) > 1 {
		text = fmt.Sprintf("array of %d, first: ", len(b.Jobs))
	}
	if j.Kind == model.KindHold {
		text += "hold "
	}
	switch {
	case j.Hold != 0:
		text += "inside " + model.JobID(j.Hold)
	case j.Pinned != "":
		text += "on " + shown(j.Pinned, maxShownText)
	default:
		text += "select " + quoted(j.Selector)
	}
	text += " for " + quoted(j.Submitter)
	if j.Priority != 0 {
		text += fmt.Sprintf(" priority=%d", j.Priority)
	}
	if j.MaxRuntimeS != 0 {
		text += fmt.Sprintf(" max-runtime=%ds", j.MaxRuntimeS)
	}
	if j.SessionS != 0 {
		text += fmt.Sprintf(" session=%ds", j.SessionS)
	}
	if j.NoWait {
		text += " no-wait"
	}
	if len(j.Env) > 0 {
		text += fmt.Sprintf(" env=%d values", len(j.Env))
	}
	if len(j.Command) > 0 {
		text += " -- " + shown(strings.Join(j.Command, " "), maxShownCommand)
	}
	return text
}

func finishSummary(b *command.JobFinish) string {
	text := fmt.Sprintf("%s on %s %s", refSummary(b.JobRef), shown(b.Host, maxShownText), endWord(b.End))
	if b.ExitCode != nil {
		text += fmt.Sprintf(" code=%d", *b.ExitCode)
	}
	if b.Reason != "" {
		text += " reason=" + quoted(b.Reason)
	}
	if b.OutputKnown {
		text += fmt.Sprintf(" output=%d bytes", b.OutputLength)
	}
	if b.OutputGap {
		text += " with a gap"
	}
	if b.Survivors != "" {
		text += " survivors=" + quoted(b.Survivors)
	}
	return text
}

func sweepSummary(b *command.Sweep) string {
	var parts []string
	if n := len(b.Silent); n > 0 {
		worst := b.Silent[0]
		for _, s := range b.Silent {
			if s.SilenceMS > worst.SilenceMS {
				worst = s
			}
		}
		parts = append(parts, fmt.Sprintf("silent %d (longest %s %dms)", n, shown(worst.Host, maxShownText), worst.SilenceMS))
	}
	if n := len(b.Unnamed); n > 0 {
		parts = append(parts, fmt.Sprintf("unnamed leases %d (first %s)", n, model.LeaseID(b.Unnamed[0].Lease)))
	}
	if n := len(b.Heard); n > 0 {
		parts = append(parts, fmt.Sprintf("heard again %d (first %s)", n, shown(b.Heard[0].Host, maxShownText)))
	}
	if n := len(b.Unordered); n > 0 {
		parts = append(parts, fmt.Sprintf("unordered %d (first %s)", n, model.JobID(b.Unordered[0])))
	}
	if n := len(b.Sessions); n > 0 {
		first := b.Sessions[0]
		parts = append(parts, fmt.Sprintf("sessions of holds %d (first %s %dms)", n, model.JobID(first.Job), first.SilenceMS))
	}
	if len(parts) == 0 {
		parts = append(parts, "nobody silent, for queued jobs that nobody serves")
	}
	parts = append(parts, fmt.Sprintf("epoch age %dms", b.EpochMS))
	return strings.Join(parts, ", ")
}

func refSummary(ref command.JobRef) string {
	return model.JobID(ref.Job) + " under " + model.LeaseID(ref.Lease)
}

func endWord(end command.EndKind) string {
	switch end {
	case command.EndExited:
		return "exited"
	case command.EndKilled:
		return "killed"
	case command.EndStartFailed:
		return "start-failed"
	case command.EndSupervisorDied:
		return "supervisor-died"
	}
	return fmt.Sprintf("end-%d", end)
}

// shown makes text fit for one line: no control characters, at most limit
// bytes, cut between characters and marked where cut.
func shown(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if len(text) <= limit {
		return text
	}
	cut := limit
	for cut > 0 && !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "…"
}

func quoted(text string) string { return `"` + shown(text, maxShownText) + `"` }
