package api

import (
	"fmt"
	"strings"

	"rcd/fsm/command"
	"rcd/model"
)

// fleetSummary is summary for commands about labels, sheets, leases and
// devices. Of sheets only the size is shown, and of a fault its detail.
func fleetSummary(body any) string {
	switch b := body.(type) {
	case *command.LabelsReplace:
		return labelsSummary(b)
	case *command.SheetPut:
		var sheets []string
		for _, s := range b.Sheets {
			name := "of the host"
			if s.Name != "" {
				name = shown(s.Name, maxShownText)
			}
			sheets = append(sheets, fmt.Sprintf("%s %d bytes", name, len(s.Body)))
		}
		return fmt.Sprintf("host %s sheets: %s", shown(b.Host, maxShownText), shown(strings.Join(sheets, ", "), maxShownCommand))
	case *command.Schedule:
		return "the whole queue"
	case *command.LeaseAllocate:
		return "at once " + enqueueSummary(&command.JobEnqueue{Jobs: []command.JobSpec{b.Job}})
	case *command.LeaseRelease:
		text := byAdmin(model.JobID(b.Job)+" by "+quoted(b.By), b.Admin)
		if b.Force {
			text += " force"
		}
		if b.Detached {
			text += " host-detached"
		}
		return text
	case *command.LeaseExtend:
		return byAdmin(model.JobID(b.Job)+" by "+quoted(b.By), b.Admin) + fmt.Sprintf(" to %ds", b.MaxRuntimeS)
	case *command.DeviceFault:
		text := shown(b.Device, maxShownText) + " " + quoted(b.Detail)
		if b.Instance != "" {
			text += " instance " + shown(b.Instance, maxShownID)
		}
		return text
	case *command.DeviceRetire:
		if b.Host != "" {
			return "host " + shown(b.Host, maxShownText)
		}
		return shown(b.Device, maxShownText)
	}
	return "of a kind that this version does not know"
}

func byAdmin(text string, admin bool) string {
	if admin {
		return text + " as admin"
	}
	return text
}

func labelsSummary(b *command.LabelsReplace) string {
	var sets []string
	for _, set := range b.Sets {
		sets = append(sets, fmt.Sprintf("%s %d", shown(set.Name, maxShownText), len(set.Labels)))
	}
	return fmt.Sprintf("host %s %s: %s", shown(b.Host, maxShownText), b.Source, shown(strings.Join(sets, ", "), maxShownCommand))
}
