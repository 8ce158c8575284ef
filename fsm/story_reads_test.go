package fsm

import (
	"fmt"
	"strings"

	"rcd/model"
)

func agentChanges(before, after *View) (out []string) {
	for _, host := range merged(before.agents.tree.Keys(), after.agents.tree.Keys()) {
		old, now := before.Agent(host), after.Agent(host)
		switch {
		case now == nil:
			out = append(out, "host "+host+" -> forgotten")
		case old == nil:
			out = append(out, "host "+host+" new -> "+agentWords(now))
		case agentWords(old) != agentWords(now):
			out = append(out, "host "+host+" "+agentWords(old)+" -> "+agentWords(now))
		}
	}
	return out
}

func agentWords(a *model.Agent) string {
	words := "in contact"
	if a.Silent {
		words = "silent"
	}
	if a.WrittenOff {
		words = "written off"
	}
	if a.ManualClear {
		words += ", wants manual clears"
	}
	return words
}

// clusterChanges says what is different of settings, controllers, request IDs
// and what waits for an operator.
func clusterChanges(before, after *View) (out []string) {
	was, is := before.Settings(), after.Settings()
	for _, name := range SettingNames() {
		a, _ := SettingValue(was, name)
		b, _ := SettingValue(is, name)
		if a != b {
			out = append(out, fmt.Sprintf("setting %s %d -> %d", name, a, b))
		}
	}
	for _, id := range merged(before.members.tree.Keys(), after.members.tree.Keys()) {
		switch old, now := before.members.get(id), after.members.get(id); {
		case now == nil:
			out = append(out, "controller "+id+" -> forgotten")
		case old == nil || old.Supports != now.Supports:
			out = append(out, fmt.Sprintf("controller %s knows feature level %d", id, now.Supports))
		}
	}
	for _, key := range merged(before.requests.tree.Keys(), after.requests.tree.Keys()) {
		switch old, now := before.requests.get(key), after.requests.get(key); {
		case now == nil:
			out = append(out, "request "+old.ID+" of "+old.Scope+" -> forgotten")
		case old == nil:
			out = append(out, "request "+now.ID+" of "+now.Scope+" is remembered")
		}
	}
	for _, key := range merged(before.sheets.tree.Keys(), after.sheets.tree.Keys()) {
		switch old, now := before.sheets.get(key), after.sheets.get(key); {
		case now == nil:
			out = append(out, "sheet of "+strings.TrimSuffix(key, ":")+" -> gone")
		case old == nil || old.Body != now.Body:
			out = append(out, fmt.Sprintf("sheet of %s: %s", strings.TrimSuffix(key, ":"), now.Body))
		}
	}
	if a, b := withheldWords(before), withheldWords(after); a != b {
		out = append(out, "write-off "+b)
	}
	if a, b := before.FeatureLevel(), after.FeatureLevel(); a != b {
		out = append(out, fmt.Sprintf("feature level %d -> %d", a, b))
	}
	if index, _ := after.Checkpoint(); index != before.meta.CheckIndex {
		out = append(out, fmt.Sprintf("checkpoint at index %d", index))
	}
	return out
}

func withheldWords(v *View) string {
	w, ok := v.Withheld()
	if !ok {
		return "nothing is withheld"
	}
	return fmt.Sprintf("withheld since term %d, last in term %d", w.FirstTerm, w.LastTerm)
}

// The acts that only read.

func rowsOrNone(name string, rows []string) string {
	if len(rows) == 0 {
		rows = []string{"none"}
	}
	return section(name, rows)
}

func actDevices(p *player, _ *words) (string, error) {
	v := p.m.View()
	var rows []string
	for _, d := range v.Devices() {
		rows = append(rows, d.ID+" "+deviceWords(v, d))
	}
	return rowsOrNone("device", rows), nil
}

func actJobs(p *player, _ *words) (string, error) {
	return jobRows(p.m.View().Jobs(JobFilter{Limit: MaxListed})), nil
}

func jobRows(jobs []*model.Job) string {
	var rows []string
	for _, j := range jobs {
		rows = append(rows, j.ID()+" of "+j.Submitter+" "+jobWords(j))
	}
	return rowsOrNone("job", rows)
}

func actHistory(p *player, w *words) (string, error) {
	return jobRows(p.m.View().Jobs(JobFilter{Limit: MaxListed, Device: w.next()})), nil
}

func actJob(p *player, w *words) (string, error) {
	j, err := w.job(p)
	if err != nil {
		return "", err
	}
	if j.Submitter == "" {
		return section("job", []string{j.ID() + " is not known, or not any more"}), nil
	}
	return jobRows([]*model.Job{j}), nil
}

func actQueue(p *player, _ *words) (string, error) {
	v := p.m.View()
	var rows []string
	for j := range v.Queued() {
		rows = append(rows, fmt.Sprintf("%s at place %d: %s", j.ID(), v.QueuePosition(j.Number), jobWords(j)))
	}
	return rowsOrNone("queue", rows), nil
}

// actWhy tells why a queued job waits and when it is expected to start, counted
// from now.
func actWhy(p *player, w *words) (string, error) {
	j, err := w.job(p)
	if err != nil {
		return "", err
	}
	v := p.m.View()
	waits, queued := v.WaitingAt(j.Number, p.stamp/nsPerMS)
	if !queued {
		return section("why", []string{j.ID() + " does not wait"}), nil
	}
	var rows []string
	for _, r := range waits.Reasons {
		rows = append(rows, string(r.Code)+": "+r.Message)
	}
	if e := waits.Expected; e.LatestMS == 0 {
		rows = append(rows, "until when cannot be said: "+e.Note)
	} else {
		rows = append(rows, "starts within "+span(e.LatestMS-p.stamp/nsPerMS)+" at the latest. "+e.Note)
	}
	return section("why", rows), nil
}

// actClock tells the two clocks: now is for people, uptime for rules.
func actClock(p *player, _ *words) (string, error) {
	v := p.m.View()
	return section("clock", []string{
		"now is " + span(v.NowMS()-startOfTime) + " after the story began, uptime is " + span(v.UptimeMS()),
	}), nil
}

func actWithheld(p *player, _ *words) (string, error) {
	return section("guard", []string{withheldWords(p.m.View())}), nil
}

func actReturns(p *player, w *words) (string, error) {
	h, err := p.m.View().RecoveryHistory(w.next())
	if err != nil {
		return "", err
	}
	rows := []string{fmt.Sprintf("%d of %d automatic returns left in %s", h.Remaining, h.Limit, span(h.WindowMS))}
	for _, r := range h.Recoveries {
		rows = append(rows, "returned from "+r.Reason.String()+" at uptime "+span(r.UptimeMS))
	}
	return section("returns", rows), nil
}

func actMatching(p *player, w *words) (string, error) {
	all, free, err := p.m.View().Matching(w.next())
	if err != nil {
		return "", err
	}
	return section("match", []string{"all: " + orNone(all), "free: " + orNone(free)}), nil
}

func orNone(ids []string) string {
	if len(ids) == 0 {
		return "none"
	}
	return strings.Join(ids, ", ")
}

func actSheetOf(p *player, w *words) (string, error) {
	id := w.next()
	d := p.m.View().Device(id)
	if d == nil {
		return "", fmt.Errorf("there is no device %q", id)
	}
	s := p.m.View().Sheet(d)
	if s == nil {
		return section("sheet", []string{"none"}), nil
	}
	whose := s.Name
	if whose == "" {
		whose = "the host"
	}
	return section("sheet", []string{"of " + whose + ": " + s.Body}), nil
}
