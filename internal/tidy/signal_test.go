package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A pid may be another process's by the time it is signalled. Only agent/proc signals by number, and compares the start time; os.Process does so for a child
// that has not been waited for.
func TestOnlyProcSignalsByPid(t *testing.T) {
	agent := filepath.Join("..", "..", "agent")
	fset := token.NewFileSet()
	seen := 0
	err := filepath.WalkDir(agent, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(fset, path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok || !slices.Contains([]string{"Kill", "Tgkill", "PidfdSendSignal"}, call.Sel.Name) {
				return true
			}
			if pkg, ok := call.X.(*ast.Ident); !ok || pkg.Name != "unix" && pkg.Name != "syscall" {
				return true
			}
			if seen++; filepath.Dir(path) != filepath.Join(agent, "proc") {
				t.Errorf("%s: signals by a bare pid; use proc.Signal or proc.KillTree", fset.Position(n.Pos()))
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Error("no call was seen at all")
	}
}
