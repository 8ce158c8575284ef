package tidy

import (
	"bytes"
	"fmt"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Check runs every rule over the module at dir, an absolute path, and returns
// what breaks them, one "file:line: sentence" each, sorted, files relative to
// dir. The error says that the module could not be read or type-checked.
func Check(dir string) ([]string, error) {
	m, err := load(dir)
	if err != nil {
		return nil, err
	}
	r := &report{module: m}
	if err := checkLength(r); err != nil {
		return nil, err
	}
	for _, p := range m.packages {
		checkDoc(r, p)
		checkImports(r, p)
		if slices.Contains(pure, p.rel) {
			if err := checkPure(r, p); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(r.problems)
	return slices.Compact(r.problems), nil
}

// report collects the problems of one module.
type report struct {
	module   *module
	problems []string
}

func (r *report) at(pos token.Pos, format string, args ...any) {
	p := r.module.fset.Position(pos)
	r.line(p.Filename, p.Line, format, args...)
}

func (r *report) line(name string, line int, format string, args ...any) {
	if rel, err := filepath.Rel(r.module.dir, name); err == nil {
		name = filepath.ToSlash(rel)
	}
	r.problems = append(r.problems, fmt.Sprintf("%s:%d: %s", name, line, fmt.Sprintf(format, args...)))
}

// checkLength looks at every Go file below the module, also those that no
// package of this platform contains.
func checkLength(r *report) error {
	return filepath.WalkDir(r.module.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != r.module.dir && (name == "testdata" || strings.HasPrefix(name, ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := bytes.Count(data, []byte("\n")); n > maxLines {
			r.line(path, n, "the file has %d lines, at most %d; split it by noun and verb", n, maxLines)
		}
		return nil
	})
}

// checkDoc wants a package comment, and a doc.go once there is more than one
// file to start reading in.
func checkDoc(r *report, p *pkg) {
	var sources []*file
	hasDocFile, hasComment := false, false
	for _, f := range p.files {
		if f.test || f.ignored {
			continue
		}
		sources = append(sources, f)
		hasDocFile = hasDocFile || f.name == "doc.go"
		hasComment = hasComment || f.syntax.Doc != nil
	}
	if len(sources) == 0 {
		return
	}
	if !hasComment {
		r.at(sources[0].syntax.Package, "package %s has no comment that says what it is for", p.rel)
	}
	if len(sources) > 1 && !hasDocFile {
		r.at(sources[0].syntax.Package, "package %s has %d files and no doc.go", p.rel, len(sources))
	}
}
