package tidy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// module is one Go module as its source says, all build tags together.
type module struct {
	dir      string
	path     string
	fset     *token.FileSet
	packages []*pkg
}

// pkg is one package; rel is its path without the module's.
type pkg struct {
	path, rel string
	files     []*file
}

// file is one Go file. ignored means that build tags leave it out here.
type file struct {
	name          string
	test, ignored bool
	syntax        *ast.File
}

// listed is what we read of go list.
type listed struct {
	ImportPath, Dir, Export                                      string
	GoFiles, CgoFiles, TestGoFiles, XTestGoFiles, IgnoredGoFiles []string
	Module                                                       *struct{ Path string }
	Error                                                        *struct{ Err string }
}

// goList runs go list in dir and returns its packages in its order.
func goList(dir string, args ...string) ([]listed, error) {
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = dir
	// A flag or a workspace of the caller's would change what is looked at.
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("go list in %s: %w: %s", dir, err, strings.TrimSpace(stderr.String()))
	}
	var all []listed
	for dec := json.NewDecoder(&stdout); ; {
		var l listed
		if err := dec.Decode(&l); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("read go list in %s: %w", dir, err)
		}
		all = append(all, l)
	}
}

// load reads and parses the packages of the module at dir. Imports need not
// resolve, so that a rule can be broken by a package that is not there.
func load(dir string) (*module, error) {
	list, err := goList(dir, "-e", "-json", "./...")
	if err != nil {
		return nil, err
	}
	m := &module{dir: dir, fset: token.NewFileSet()}
	for _, l := range list {
		if l.Module == nil {
			return nil, fmt.Errorf("package %s is in no module", l.ImportPath)
		}
		m.path = l.Module.Path
		p := &pkg{path: l.ImportPath, rel: strings.TrimPrefix(strings.TrimPrefix(l.ImportPath, m.path), "/")}
		add := func(ignored bool, names []string) error {
			for _, name := range names {
				full := filepath.Join(l.Dir, name)
				syntax, err := parser.ParseFile(m.fset, full, nil, parser.ParseComments|parser.SkipObjectResolution)
				if err != nil {
					return fmt.Errorf("parse: %w", err)
				}
				p.files = append(p.files, &file{name, strings.HasSuffix(name, "_test.go"), ignored, syntax})
			}
			return nil
		}
		for _, names := range [][]string{l.GoFiles, l.CgoFiles, l.TestGoFiles, l.XTestGoFiles} {
			if err := add(false, names); err != nil {
				return nil, err
			}
		}
		if err := add(true, l.IgnoredGoFiles); err != nil {
			return nil, err
		}
		m.packages = append(m.packages, p)
	}
	return m, nil
}
