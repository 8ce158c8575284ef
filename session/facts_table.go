package session

import (
	"slices"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// FactTable is what facts are compared with: one view of the lease table.
type FactTable interface {
	Device(id string) *model.Device
	// Sheet returns the usage sheet that stands for a device: its own, else its
	// host's, else nil.
	Sheet(d *model.Device) *model.Sheet
}

// DifferingLabels returns the sets of detected labels that are not what the
// table has; all returns every set, for a leader that does not know what is on
// its way. A device without a row has been retired and is left out.
func DifferingLabels(table FactTable, host string, told []wire.DeviceFacts, all bool) (sets []command.DeviceLabels) {
	for _, d := range told {
		row := table.Device(model.DeviceID(host, d.Name))
		if row != nil && (all || !slices.Equal(labelsOf(row.Detected), d.Detected)) {
			sets = append(sets, command.DeviceLabels{Name: d.Name, Labels: KeyValues(d.Detected)})
		}
	}
	return sets
}

// DifferingSheets is DifferingLabels for usage sheets.
func DifferingSheets(table FactTable, host string, told []wire.SheetText, all bool) (sheets []command.SheetText) {
	for _, s := range told {
		if s.Name != "" && table.Device(model.DeviceID(host, s.Name)) == nil {
			continue
		}
		if all || bodyOf(table, host, s.Name) != s.Body {
			sheets = append(sheets, command.SheetText{Name: s.Name, Body: s.Body})
		}
	}
	return sheets
}

// FactsOf returns what the table has of the devices that a hello names.
func FactsOf(table FactTable, hello wire.Hello) wire.Facts {
	f := wire.Facts{Sheets: []wire.SheetText{{Body: bodyOf(table, hello.Host, "")}}}
	for _, d := range hello.Devices {
		if row := table.Device(model.DeviceID(hello.Host, d.Name)); row != nil {
			f.Labels = append(f.Labels, wire.DeviceFacts{Name: d.Name, Detected: labelsOf(row.Detected)})
			f.Sheets = append(f.Sheets, wire.SheetText{Name: d.Name, Body: bodyOf(table, hello.Host, d.Name)})
		}
	}
	return f
}

// bodyOf returns a sheet of its own: the host's does not stand in for a
// device's.
func bodyOf(table FactTable, host, name string) string {
	sheet := table.Sheet(&model.Device{ID: model.DeviceID(host, name), Host: host})
	if sheet == nil || sheet.Name != name {
		return ""
	}
	return sheet.Body
}

// labelsOf returns rows as the host tells them, sorted by key.
func labelsOf(rows []model.Label) []wire.LabelKV {
	out := make([]wire.LabelKV, 0, len(rows))
	for _, l := range rows {
		out = append(out, wire.LabelKV{Key: l.Key, Value: l.Value})
	}
	return out
}

// KeyValues returns labels as a command carries them.
func KeyValues(list []wire.LabelKV) []command.KV {
	out := make([]command.KV, 0, len(list))
	for _, l := range list {
		out = append(out, command.KV{Key: l.Key, Value: l.Value})
	}
	return out
}
