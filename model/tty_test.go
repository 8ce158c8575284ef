package model

import "testing"

func TestATerminalsSizeIsColumnsAndRows(t *testing.T) {
	if cols, rows, ok := ParseTTYSize("120x40"); !ok || cols != 120 || rows != 40 {
		t.Errorf("%d, %d, %v", cols, rows, ok)
	}
	for _, text := range []string{"", "x", "120", "120x", "x40", "0x40", "120x0", "65536x1", "-1x40", "120X40", "120x40x1", " 120x40"} {
		if cols, rows, ok := ParseTTYSize(text); ok || cols != 0 || rows != 0 {
			t.Errorf("%q: %d, %d, %v", text, cols, rows, ok)
		}
	}
}
