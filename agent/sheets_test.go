package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"rcd/wire"
)

// writeSheet puts a sheet into a directory.
func writeSheet(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestASheetThatCannotBeToldLeavesTheOneBefore(t *testing.T) {
	c := newControl(t)
	config := testConfig(dataDir(t), c)
	config.SheetDir = t.TempDir()
	write := func(name, text string) { writeSheet(t, config.SheetDir, name, text) }
	write("host.md", "of the host")
	write("host.d/gpu0.md", strings.Repeat("x", 1000))
	write("host.d/gpu9.md", "of nobody")
	a := newTestAgent(t, config)
	a.observe()
	told := func() map[string]string {
		out := map[string]string{}
		for _, s := range a.Facts().Sheets {
			out[s.Name] = fmt.Sprint(len(s.Body))
		}
		return out
	}
	eventually(t, "sheets read", func() bool { return len(told()) == 3 })
	if got := told(); got[""] != "11" || got["gpu0"] != "1000" || got["gpu1"] != "0" {
		t.Errorf("told %v", got)
	}
	again := func() { a.keeper.hearSheets(readSheets(config.SheetDir, a.keeper.devices)) }
	write("host.d/gpu1.md", "\xff\xfe")
	for _, err := range []error{
		os.Remove(filepath.Join(config.SheetDir, "host.md")), os.Remove(filepath.Join(config.SheetDir, "host.d/gpu0.md")),
		os.Mkdir(filepath.Join(config.SheetDir, "host.d/gpu0.md"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	again()
	if got := told(); len(got) != 1 || got[""] != "0" {
		t.Errorf("told %v: two cannot be told, one is gone", got)
	}
	if n := a.keeper.notices; !strings.Contains(n["gpu0"], "no regular file") || !strings.Contains(n["gpu1"], "UTF-8") {
		t.Errorf("notices %q", n)
	}
	write("host.d/gpu1.md", "better")
	again()
	if got := told(); got["gpu1"] != "6" || a.keeper.notices["gpu1"] != "" {
		t.Errorf("told %v, notices %q", got, a.keeper.notices)
	}
}

func TestALongSheetIsCutAtALineAndSaysSo(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		last       string // before the notice
	}{
		{"at a line", strings.Repeat("0123456789\n", 7000), "0123456789\n"},
		{"a long line", strings.Repeat("é", 40000), "é\n"},
		{"a long line behind a short one", "# head\n" + strings.Repeat("x", 70000), "x\n"},
		{"by one byte", strings.Repeat("y", maxSheet-1) + "\nz", "y\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			writeSheet(t, dir, "host.md", tt.text)
			s := readSheets(dir, []string{"gpu0"})
			body := s.bodies[""]
			notice := fmt.Sprintf("[cut: the file has %d bytes, 64 KiB are shown]\n", len(tt.text))
			if len(body) > maxSheet || len(body) < maxSheet-200 || !utf8.ValidString(body) || !strings.HasSuffix(body, tt.last+notice) {
				t.Errorf("%d bytes, end %q", len(body), body[max(0, len(body)-100):])
			}
			if s.sizes[""] != int64(len(tt.text)) || len(s.refused) != 0 {
				t.Errorf("sizes %v, refused %v", s.sizes, s.refused)
			}
		})
	}
	dir := t.TempDir()
	writeSheet(t, dir, "host.md", strings.Repeat("é", maxSheet/2))
	if s := readSheets(dir, nil); len(s.bodies[""]) != maxSheet || len(s.sizes) != 0 {
		t.Error("a sheet that fits is cut")
	}
	writeSheet(t, dir, "host.md", strings.Repeat("x", maxSheet/2)+"\xff"+strings.Repeat("x", maxSheet))
	if s := readSheets(dir, nil); !strings.Contains(s.refused[""], "UTF-8") {
		t.Errorf("refused %v", s.refused)
	}
}

func TestTheSheetsOfAHostFitTogetherAndTheLongestAreCut(t *testing.T) {
	dir := t.TempDir()
	names := []string{"a", "b", "c"}
	writeSheet(t, dir, "host.md", "short\n")
	writeSheet(t, dir, "host.d/a.md", strings.Repeat("a\n", 20000))
	writeSheet(t, dir, "host.d/b.md", strings.Repeat("b\n", 50000))
	writeSheet(t, dir, "host.d/c.md", strings.Repeat("c\n", 5000))
	s := readSheets(dir, names)
	total := 0
	for _, body := range s.bodies {
		total += len(body)
	}
	if total > maxSheets || total < maxSheets-300 || s.bodies[""] != "short\n" || len(s.bodies["c"]) != 10000 || len(s.sizes) != 2 {
		t.Errorf("%d bytes in all, c has %d, cut %v", total, len(s.bodies["c"]), s.sizes)
	}
	for _, name := range []string{"a", "b"} {
		if !strings.HasSuffix(s.bodies[name], "the sheets of a host 64 KiB in all]\n") {
			t.Errorf("%s ends in %q", name, s.bodies[name][len(s.bodies[name])-80:])
		}
	}
	names = nil
	for n := range maxDevices {
		name := fmt.Sprintf("gpu%03d", n)
		names = append(names, name)
		writeSheet(t, dir, "host.d/"+name+".md", strings.Repeat("é", 40000))
	}
	total = 0
	for _, body := range readSheets(dir, names).bodies {
		if total += len(body); !utf8.ValidString(body) {
			t.Error("cut inside a rune")
		}
	}
	if total > maxSheets {
		t.Errorf("%d bytes in all", total)
	}
}

func TestACutSheetIsLoggedOnceAndToldAgainWhenItChanges(t *testing.T) {
	log := &logBook{}
	dir := t.TempDir()
	told := 0
	k := newKeeper([]Device{{Name: "gpu0"}}, nil, log.logger(), func() { told++ })
	for n := range 3 {
		writeSheet(t, dir, "host.md", strings.Repeat("x\n", maxSheet+n))
		k.hearSheets(readSheets(dir, k.devices))
		k.hearSheets(readSheets(dir, k.devices))
	}
	if n := strings.Count(log.text(), "usage sheet cut"); n != 1 || told != 3 {
		t.Errorf("logged %d times, told %d times:\n%s", n, told, log.text())
	}
	writeSheet(t, dir, "host.md", "short")
	k.hearSheets(readSheets(dir, k.devices))
	if !slices.Contains(k.facts().Sheets, wire.SheetText{Body: "short"}) {
		t.Errorf("%+v", k.facts().Sheets)
	}
	writeSheet(t, dir, "host.md", strings.Repeat("x\n", maxSheet))
	k.hearSheets(readSheets(dir, k.devices))
	if n := strings.Count(log.text(), "usage sheet cut"); n != 2 {
		t.Errorf("logged %d times:\n%s", n, log.text())
	}
}
