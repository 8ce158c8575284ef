package tidy

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestTheProjectKeepsTheHouseRules(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	problems, err := Check(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Error(p)
	}
}

// Each module below testdata breaks one family of rules; a comment
// `want "text"` stands on every line that has to be reported, one text a
// problem, and nothing else may be.
func TestEveryRuleSeesItsBreach(t *testing.T) {
	for _, name := range []string{"imports", "pure", "doc", "good"} {
		t.Run(name, func(t *testing.T) {
			dir, err := filepath.Abs(filepath.Join("testdata", name))
			if err != nil {
				t.Fatal(err)
			}
			want := wanted(t, dir)
			if (len(want) == 0) != (name == "good") {
				t.Fatalf("%d lines with a want comment", len(want))
			}
			problems, err := Check(dir)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range problems {
				at := placeOf(p)
				i := slices.IndexFunc(want[at], func(text string) bool { return strings.Contains(p, text) })
				if i < 0 {
					t.Errorf("not wanted: %s", p)
				}
			}
			for at, texts := range want {
				for _, text := range texts {
					if !slices.ContainsFunc(problems, func(p string) bool { return placeOf(p) == at && strings.Contains(p, text) }) {
						t.Errorf("%s: nobody reported %q", at, text)
					}
				}
			}
		})
	}
}

// placeOf returns the "file:line" of a problem.
func placeOf(problem string) string {
	parts := strings.SplitN(problem, ":", 3)
	return parts[0] + ":" + parts[1]
}

var quoted = regexp.MustCompile(`"([^"]+)"`)

// wanted returns the texts of the want comments below dir by "file:line".
func wanted(t *testing.T, dir string) map[string][]string {
	t.Helper()
	want := map[string][]string{}
	fset := token.NewFileSet()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") {
			return err
		}
		f, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, group := range f.Comments {
			for _, c := range group.List {
				texts, ok := strings.CutPrefix(c.Text, "// want ")
				if !ok {
					continue
				}
				rel, err := filepath.Rel(dir, path)
				if err != nil {
					return err
				}
				at := fmt.Sprintf("%s:%d", filepath.ToSlash(rel), fset.Position(c.Pos()).Line)
				for _, m := range quoted.FindAllStringSubmatch(texts, -1) {
					want[at] = append(want[at], m[1])
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return want
}

func TestAFileOverTheLimitIsSeen(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, lines int) {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		text := "// Package wire is long.\npackage wire\n" + strings.Repeat("//\n", lines-2)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module rcd\n\ngo 1.26\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	write("wire/doc.go", maxLines)
	write("wire/long_test.go", maxLines+1)
	write("wire/testdata/long.go", maxLines+1)
	problems, err := Check(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(problems) != 1 || !strings.HasPrefix(problems[0], "wire/long_test.go:501: ") {
		t.Fatalf("%q", problems)
	}
}

// A pure package that does not compile must not pass for a clean one.
func TestWhatDoesNotCompileIsAnError(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":     "module rcd\n\ngo 1.26\n",
		"fsm/fsm.go": "// Package fsm is broken.\npackage fsm\n\nvar x int = \"text\"\n",
	} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if problems, err := Check(dir); err == nil {
		t.Fatalf("no error; problems %q", problems)
	}
}

// A rule about a package that no longer exists would pass for ever.
func TestTheTablesAgree(t *testing.T) {
	for _, p := range pure {
		if _, ok := floors[p]; !ok {
			t.Errorf("pure package %s has no floor", p)
		}
	}
	for module, who := range owners {
		for _, p := range who {
			if _, ok := floors[p]; !ok && p != anyone && p != testsOnly {
				t.Errorf("%s is owned by %s, which has no floor", module, p)
			}
		}
	}
}
