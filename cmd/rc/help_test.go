package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

func grammar(t *testing.T) *kong.Kong {
	t.Helper()
	parser, err := newParser(&cli{}, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return parser
}

// examples returns the command lines that a help shows.
func examples(help string) []string {
	var lines []string
	for line := range strings.Lines(help) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "rc ") {
			line, _, _ = strings.Cut(line, " > ") // where the shell puts the output
			lines = append(lines, line)
		}
	}
	return lines
}

// split takes a line apart as a shell would that knows only single quotes.
func split(line string) []string {
	var words []string
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

func TestEveryHelpShowsExamplesThatParse(t *testing.T) {
	model := grammar(t).Model
	verbs := 0
	var walk func(node *kong.Node, path string)
	walk = func(node *kong.Node, path string) {
		help := node.Help + "\n" + node.Detail
		lines := examples(help)
		if !strings.Contains(help, "Example") || len(lines) == 0 {
			t.Errorf("%s --help shows no example", path)
		}
		for _, line := range lines {
			if _, err := grammar(t).Parse(split(line)[1:]); err != nil {
				t.Errorf("%s --help shows %q, which is refused: %v", path, line, err)
			}
		}
		if !strings.Contains(strings.Join(lines, "\n"), path) {
			t.Errorf("%s --help shows no example of itself", path)
		}
		for _, child := range node.Children {
			verbs++
			walk(child, fmt.Sprintf("%s %s", path, child.Name))
		}
	}
	walk(model.Node, "rc")
	if verbs < 15 {
		t.Fatalf("only %d verbs seen", verbs)
	}
}

// Commands in the pages are read as those in the help are.
func TestThePagesShowCommandsThatParse(t *testing.T) {
	for _, page := range []string{"../../docs/rc.md", exitCodesPage} {
		raw, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		lines := examples(string(raw))
		if len(lines) == 0 {
			t.Errorf("%s shows no command", page)
		}
		for _, line := range lines {
			if _, err := grammar(t).Parse(split(line)[1:]); err != nil {
				t.Errorf("%s shows %q, which is refused: %v", page, line, err)
			}
		}
	}
}
