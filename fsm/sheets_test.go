package fsm

import (
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
)

func sheet(name, body string) command.SheetText { return command.SheetText{Name: name, Body: body} }

func sheetsOf(host, instance string, sheets ...command.SheetText) *command.SheetPut {
	return &command.SheetPut{Host: host, Instance: instance, Sheets: sheets}
}

func boxSheets(sheets ...command.SheetText) *command.SheetPut {
	return sheetsOf("box", "i1", sheets...)
}

func (l *log) wantSheet(device, body string) *model.Sheet {
	l.tb.Helper()
	s := l.m.View().Sheet(l.device(device))
	switch {
	case s == nil && body != "":
		l.tb.Fatalf("%s has no sheet, want %q", device, body)
	case s != nil && s.Body != body:
		l.tb.Fatalf("%s has the sheet %q, want %q", device, s.Body, body)
	}
	return s
}

func TestADevicesOwnSheetComesBeforeItsHosts(t *testing.T) {
	l := box(t)
	l.wantSheet("box:gpu0", "")
	l.ok(boxSheets(sheet("", "ask ann"), sheet("gpu0", "slow fan")))
	if len(told(l, command.EventSheets)) != 1 || l.events[0].Host != "box" {
		t.Errorf("events %+v", l.events)
	}
	l.wantSheet("box:gpu0", "slow fan")
	if s := l.wantSheet("box:gpu1", "ask ann"); s.Name != "" || s.UpdatedAtMS != l.m.View().NowMS() {
		t.Errorf("%+v", s)
	}
	// Each is replaced outright, an empty one is gone, one not named stays.
	l.ok(boxSheets(sheet("gpu0", "")))
	l.wantSheet("box:gpu0", "ask ann")
	l.ok(boxSheets(sheet("", "ask bob")))
	l.wantSheet("box:gpu1", "ask bob")
	l.ok(boxSheets(sheet("", "")))
	l.wantSheet("box:gpu0", "")
	l.ok(boxSheets(sheet("gpu1", ""))) // it was not there
	l.ok(boxSheets())
	if len(l.events) != 0 {
		t.Errorf("events %+v", l.events)
	}
}

func TestRefusedSheetsChangeNothing(t *testing.T) {
	l := box(t)
	l.ok(register("box:far", "f1", spec("gpu0", 0)))
	l.ok(&command.ConfigSet{Settings: []command.Setting{{Name: "max_sheet_bytes", Value: 100}, {Name: "max_sheets_bytes", Value: 150}}})
	l.ok(boxSheets(sheet("gpu1", strings.Repeat("x", 60))))
	good := sheet("", "ask ann")
	for _, c := range []struct {
		name   string
		code   command.Code
		sheets []command.SheetText
	}{
		{"an unregistered device", command.DeviceNotFound, []command.SheetText{good, sheet("gpu7", "x")}},
		{"a device of a host whose name begins alike", command.DeviceNotFound, []command.SheetText{good, sheet("far:gpu0", "x")}},
		{"one twice", command.BadRequest, []command.SheetText{good, good}},
		{"too long", command.SheetTooLarge, []command.SheetText{good, sheet("gpu0", strings.Repeat("x", 101))}},
		{"too much in one request", command.SheetTooLarge, []command.SheetText{sheet("", strings.Repeat("x", 80)), sheet("gpu0", strings.Repeat("x", 80))}},
		{"too much with those there", command.SheetTooLarge, []command.SheetText{sheet("", strings.Repeat("x", 91))}},
	} {
		t.Run(c.name, func(t *testing.T) { l.refused(c.code, boxSheets(c.sheets...)) })
	}
	l.ok(boxSheets(sheet("", strings.Repeat("x", 90)))) // the bound itself
	l.ok(boxSheets(sheet("", strings.Repeat("y", 50)), sheet("gpu1", strings.Repeat("y", 100))))
}

func TestASheetMayShrinkUnderALoweredBound(t *testing.T) {
	l := box(t)
	l.ok(boxSheets(sheet("", strings.Repeat("x", 100)), sheet("gpu0", strings.Repeat("x", 100))))
	l.ok(configured("max_sheets_bytes", 50))
	l.refused(command.SheetTooLarge, boxSheets(sheet("gpu0", strings.Repeat("y", 100))))
	l.ok(boxSheets(sheet("gpu0", "")))
	l.wantSheet("box:gpu0", strings.Repeat("x", 100))
}

func TestTheSheetsOfAHostAreBoundedWhateverItsNeighboursAreCalled(t *testing.T) {
	l := box(t)
	l.ok(register("box:a", "a1", spec("g", 0)))
	between := strings.Repeat("a", 90) // of box's own two in the table
	l.ok(sheetsOf("box:a", "a1", sheet("g", between)))
	l.ok(configured("max_sheets_bytes", 100))
	l.ok(boxSheets(sheet("gpu0", strings.Repeat("x", 60))))
	l.refused(command.SheetTooLarge, boxSheets(sheet("gpu1", strings.Repeat("x", 60))))
	l.wantSheet("box:a:g", between)
}

func TestTheDefaultBoundOfSheetsIs64KiB(t *testing.T) {
	l := box(t)
	l.refused(command.SheetTooLarge, boxSheets(sheet("", strings.Repeat("x", 64<<10+1))))
	l.ok(boxSheets(sheet("", strings.Repeat("x", 64<<10))))
	l.refused(command.SheetTooLarge, boxSheets(sheet("gpu0", "x")))
}

func TestASheetOutlivesARestartOfItsAgent(t *testing.T) {
	l := box(t)
	l.ok(boxSheets(sheet("gpu1", "slow fan")))
	l.ok(again("i2", 0))
	l.wantSheet("box:gpu1", "slow fan")
	l.m = restored(t, l.m)
	l.wantSheet("box:gpu1", "slow fan")
}
