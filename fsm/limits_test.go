package fsm

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"rcd/model"
)

// TestDocumentedLimitsAreThoseOfTheBuild holds the tables of docs/limits.md
// against the settings: each once, with its default and its range.
func TestDocumentedLimitsAreThoseOfTheBuild(t *testing.T) {
	data, err := os.ReadFile("../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(data)) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		name := strings.Trim(cells[1], " `")
		rule := settingNamed(name)
		if rule == nil || seen[name] {
			t.Errorf("%s is no setting, or stands there twice", name)
			continue
		}
		seen[name] = true
		value, _ := SettingValue(model.DefaultSettings(), name)
		if got := number(t, cells[2]); got != value {
			t.Errorf("%s: the default is %d, the page says %d", name, value, got)
		}
		low, high, _ := strings.Cut(cells[3], " to ")
		if number(t, low) != rule.min || number(t, high) != rule.max {
			t.Errorf("%s: the range is %d to %d, the page says %s", name, rule.min, rule.max, cells[3])
		}
	}
	for _, name := range SettingNames() {
		if !seen[name] {
			t.Errorf("%s is not on the page", name)
		}
	}
}

// number reads the first word of a cell, thousands set off by commas.
func number(t *testing.T, cell string) int64 {
	t.Helper()
	word, _, _ := strings.Cut(strings.TrimSpace(cell), " ")
	n, err := strconv.ParseInt(strings.ReplaceAll(word, ",", ""), 10, 64)
	if err != nil {
		t.Errorf("%q is no number", cell)
	}
	return n
}
