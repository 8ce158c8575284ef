package fsm

import (
	"slices"
	"strings"

	"rcd/fsm/command"
	"rcd/model"
)

// sheetPut replaces usage sheets of a host. Each is what is on the host's disk
// now; an empty one is gone.
func (t *txn) sheetPut(b *command.SheetPut) answer {
	if a := t.reporter(b.Host, b.Instance); a.Code != command.OK {
		return a
	}
	var named []string
	var total, before int64
	for _, s := range b.Sheets {
		id := model.DeviceID(b.Host, s.Name)
		switch {
		case s.Name != "" && t.deviceOf(b.Host, s.Name) == nil:
			return refuse(command.DeviceNotFound, "The host %q has not registered a device %q; register it first.", b.Host, short(s.Name))
		case slices.Contains(named, id):
			return refuse(command.BadRequest, "A usage sheet comes twice; send one for each device.")
		case int64(len(s.Body)) > t.settings.MaxSheetBytes:
			return refuse(command.SheetTooLarge, "A usage sheet has at most %d bytes and this one has %d; shorten it.", t.settings.MaxSheetBytes, len(s.Body))
		}
		named = append(named, id)
		total += int64(len(s.Body))
	}
	for _, s := range t.View.sheetsOn(b.Host) {
		before += int64(len(s.Body))
		if !slices.Contains(named, model.DeviceID(s.Host, s.Name)) {
			total += int64(len(s.Body))
		}
	}
	// Under a bound that was lowered since, shorter sheets are still taken.
	if total > t.settings.MaxSheetsBytes && total >= before {
		return refuse(command.SheetTooLarge, "The usage sheets of a host have at most %d bytes in all and these come to %d; shorten them.", t.settings.MaxSheetsBytes, total)
	}
	t.hear(b.Host)
	if len(b.Sheets) == 0 {
		return answer{}
	}
	for _, s := range b.Sheets {
		id := model.DeviceID(b.Host, s.Name)
		if s.Body == "" {
			t.sheets.remove(&t.digest, id)
			continue
		}
		t.sheets.put(&t.digest, id, model.Sheet{Host: b.Host, Name: s.Name, Body: s.Body, UpdatedAtMS: t.nowMS()})
	}
	t.emit(command.Event{Kind: command.EventSheets, Host: b.Host})
	return answer{}
}

// Sheet returns the usage sheet of a device: its own, else its host's, else
// nil. A sheet of the host has an empty Name.
func (v *View) Sheet(d *model.Device) *model.Sheet {
	if s := v.sheets.get(d.ID); s != nil {
		return s
	}
	return v.sheets.get(model.DeviceID(d.Host, ""))
}

// sheetsOn returns the sheets of a host, its own first. Those of a host whose
// name begins alike, with a colon after it, lie between.
func (v *View) sheetsOn(host string) []*model.Sheet {
	var rows []*model.Sheet
	prefix := model.DeviceID(host, "")
	v.sheets.ascend(prefix, func(id string, s *model.Sheet) bool {
		if !strings.HasPrefix(id, prefix) {
			return false
		}
		if s.Host == host {
			rows = append(rows, s)
		}
		return true
	})
	return rows
}
