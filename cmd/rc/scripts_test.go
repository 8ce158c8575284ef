package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// sixFormats are what every listing has; text is another word for table.
var sixFormats = []string{formatTable, formatWide, formatJSON, formatJSONL, formatYAML, formatName}

// noGolden are verbs whose words differ from run to run, so that no golden file
// can hold them; their formats must be shown all the same.
var noGolden = map[string]string{"version": "prints the version of Go", "cp": "prints how long it took"}

// shownLine is one run of rc in a script.
type shownLine struct {
	words  []string // after rc
	golden bool     // what it prints is compared as a whole
}

// shownLines reads every run of rc in the scripts.
func shownLines(t *testing.T) []shownLine {
	t.Helper()
	scripts, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	var all []shownLine
	for _, path := range scripts {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		script, _, _ := strings.Cut(string(raw), "\n-- ") // the files follow
		lines := strings.Split(script, "\n")
		for i, line := range lines {
			words := strings.Fields(strings.TrimPrefix(line, "! "))
			at := slices.Index(words, "rc")
			if len(words) == 0 || at < 0 || !slices.Contains([]string{"exec", "exits", "follow"}, words[0]) {
				continue
			}
			next := append(lines[i+1:], "")[0]
			golden := strings.HasPrefix(next, "cmp stdout ") || strings.HasPrefix(next, "cmp out ") ||
				strings.HasPrefix(next, "cmpenv stdout ")
			all = append(all, shownLine{words[at+1:], golden})
		}
	}
	return all
}

// verbs are the leaves of the command line, hidden ones too, and whether each
// takes -o.
func verbs(t *testing.T) map[string]bool {
	t.Helper()
	var c cli
	parser, err := newParser(&c, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	var walk func(n *kong.Node, path string)
	walk = func(n *kong.Node, path string) {
		for _, child := range n.Children {
			walk(child, strings.TrimSpace(path+" "+child.Name))
		}
		if len(n.Children) > 0 || n.Type != kong.CommandNode {
			return
		}
		all[path] = slices.ContainsFunc(n.Flags, func(f *kong.Flag) bool { return f.Name == "output" })
	}
	walk(parser.Model.Node, "")
	return all
}

// formatOf is the format that a line asks for.
func formatOf(words []string) string {
	for i, word := range words {
		switch {
		case word == "--":
			return formatTable
		case word == "--json":
			return formatJSON
		case word == "-o" || word == "--output":
			if next := append(words[i+1:], "")[0]; slices.Contains(formats, next) {
				return next
			}
			return formatJSON
		case strings.HasPrefix(word, "--output="):
			return strings.TrimPrefix(word, "--output=")
		case strings.HasPrefix(word, "-o="):
			return strings.TrimPrefix(word, "-o=")
		}
	}
	return formatTable
}

// TestEveryVerbHasAScriptAndEveryListingAGoldenOfEachFormat: the scripts are
// the documentation of what rc prints, and the goldens keep scripts of others
// that read it working.
func TestEveryVerbHasAScriptAndEveryListingAGoldenOfEachFormat(t *testing.T) {
	lines := shownLines(t)
	for verb, lists := range verbs(t) {
		path := strings.Fields(verb)
		shown, golden := map[string]bool{}, map[string]bool{}
		for _, line := range lines {
			if len(line.words) < len(path) || !slices.Equal(line.words[:len(path)], path) || slices.Contains(line.words, "--help") {
				continue
			}
			format := formatOf(line.words)
			if format == formatText {
				format = formatTable
			}
			shown[format] = true
			golden[format] = golden[format] || line.golden
		}
		if len(shown) == 0 {
			t.Errorf("no script shows rc %s", verb)
		}
		if !lists {
			continue
		}
		for _, format := range sixFormats {
			switch {
			case !shown[format]:
				t.Errorf("no script shows rc %s -o %s", verb, format)
			case !golden[format] && noGolden[verb] == "":
				t.Errorf("no script compares the whole of rc %s -o %s with a golden file", verb, format)
			}
		}
	}
}
