package controller

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"rcd/fsm/command"
)

// maxTold is how many devices a line of the log names.
const maxTold = 5

// fleetNews are the lines that an entry makes in the leader's log about
// devices: what an operator who was not there wants to find again.
var fleetNews = []struct {
	kind  command.EventKind
	level slog.Level
	text  string
}{
	{command.EventDeviceState, slog.LevelWarn, "devices are in quarantine"},
	{command.EventDeviceRecovered, slog.LevelInfo, "devices came back from quarantine by themselves"},
	{command.EventRecoveryWithheld, slog.LevelWarn, "devices stay in quarantine, their automatic returns are used up: look at them, then rc clear"},
	{command.EventDeviceRetired, slog.LevelInfo, "devices are retired"},
}

// tellFleet logs what an entry did to devices, in one line for each kind and
// reason, however many there are: it is called on the state machine's
// goroutine.
func (c *Controller) tellFleet(events []command.Event) {
	view := c.machine.View()
	for _, news := range fleetNews {
		var reasons []string
		devices := map[string][]string{}
		for _, e := range events {
			if e.Kind != news.kind || e.Kind == command.EventDeviceState && e.Reason == "" {
				continue
			}
			reason := e.Reason
			if h, err := view.RecoveryHistory(e.Device); e.Kind == command.EventDeviceState && err == nil && h.Remaining == 0 {
				reason += ", automatic returns used up: look at it, then rc clear" // its leader asks its host for no proof
			}
			if !slices.Contains(reasons, reason) {
				reasons = append(reasons, reason)
			}
			devices[reason] = append(devices[reason], e.Device)
		}
		for _, reason := range reasons {
			args := []any{"devices", some(devices[reason])}
			if reason != "" {
				args = append(args, "reason", reason)
			}
			c.log.Log(context.Background(), news.level, news.text, args...)
		}
	}
}

// some names the first few.
func some(names []string) string {
	if len(names) <= maxTold {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:maxTold], ", ") + fmt.Sprintf(" and %d more", len(names)-maxTold)
}
