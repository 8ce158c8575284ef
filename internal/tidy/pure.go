package tidy

import (
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/types"
	"io"
	"os"
	"strconv"
)

// checkPure looks at the files of a package that every replica must run alike
// for clocks, randomness, I/O, goroutines, floats and map order.
func checkPure(r *report, p *pkg) error {
	var files []*ast.File
	for _, f := range p.files {
		if f.test {
			continue
		}
		if f.ignored {
			r.at(f.syntax.Package, "a build tag makes replicas differ")
			continue
		}
		files = append(files, f.syntax)
	}
	if len(files) == 0 {
		return nil
	}
	info, err := typesOf(r.module, p, files)
	if err != nil {
		return err
	}
	v := &pureVisitor{report: r, info: info, sorted: map[ast.Node]bool{}}
	for _, f := range files {
		v.imports(f)
		ast.Inspect(f, v.visit)
	}
	return nil
}

// typesOf type-checks files against the compiled export data of what they
// import, which go list builds, so the package's imports have to compile.
func typesOf(m *module, p *pkg, files []*ast.File) (*types.Info, error) {
	deps, err := goList(m.dir, "-e", "-export", "-deps", "-json=ImportPath,Export,Error", p.path)
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for _, d := range deps {
		exports[d.ImportPath] = d.Export
	}
	lookup := func(path string) (io.ReadCloser, error) {
		name := exports[path]
		if name == "" {
			return nil, fmt.Errorf("no export data of %s: does it compile?", path)
		}
		return os.Open(name)
	}
	info := &types.Info{
		Types: map[ast.Expr]types.TypeAndValue{},
		Defs:  map[*ast.Ident]types.Object{},
		Uses:  map[*ast.Ident]types.Object{},
	}
	var all []error
	config := types.Config{
		Importer: importer.ForCompiler(m.fset, "gc", lookup),
		Error:    func(err error) { all = append(all, err) },
	}
	if _, err := config.Check(p.path, m.fset, files, info); err != nil {
		return nil, fmt.Errorf("type-check %s: %w", p.path, errors.Join(all...))
	}
	return info, nil
}

type pureVisitor struct {
	report *report
	info   *types.Info
	// sorted holds the calls whose result goes straight into a sort, the one
	// place where the order of a map does not get out.
	sorted map[ast.Node]bool
}

func (v *pureVisitor) imports(f *ast.File) {
	for _, spec := range f.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		for _, root := range impureImports {
			if below(path, root) {
				v.report.at(spec.Pos(), "import of %s: replicas must not see a clock, chance, I/O or the environment", path)
			}
		}
	}
}

func (v *pureVisitor) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		v.report.at(n.Pos(), "go statement: Apply runs on one goroutine")
	case *ast.SelectStmt:
		v.report.at(n.Pos(), "select statement: it chooses by chance")
	case *ast.RangeStmt:
		if v.rangesOverMap(n.X) {
			v.report.at(n.Pos(), "range over a map: its order differs between replicas; use slices.Sorted(maps.Keys(m)) or a sorted table")
		}
	case *ast.CallExpr:
		if isCallOf(v.info, n, "slices", "Sorted", "SortedFunc", "SortedStableFunc") && len(n.Args) > 0 {
			v.sorted[ast.Unparen(n.Args[0])] = true
		}
		if isCallOf(v.info, n, "maps", "Keys", "Values", "All") && !v.sorted[n] {
			v.report.at(n.Pos(), "unsorted iteration of a map: its order differs between replicas; put it straight into slices.Sorted")
		}
	case *ast.Ident:
		if o := v.info.Uses[n]; o != nil && isPackageLevel(o, "time") && impureTime[o.Name()] {
			v.report.at(n.Pos(), "time.%s: replicas know only the stamps of their entries", o.Name())
		}
		if o := v.info.Defs[n]; o != nil && isFloat(o.Type()) {
			v.report.at(n.Pos(), "%s has the type %s: floats are not the same on every machine", n.Name, o.Type())
		}
	}
	if e, ok := n.(ast.Expr); ok {
		if t := v.info.Types[e].Type; t != nil && isFloat(t) {
			v.report.at(n.Pos(), "an expression of type %s: floats are not the same on every machine", t)
		}
	}
	return true
}

// rangesOverMap reports whether x is a map, or a type parameter that may be.
func (v *pureVisitor) rangesOverMap(x ast.Expr) bool {
	t := v.info.TypeOf(x)
	if t == nil {
		return false
	}
	if _, ok := t.(*types.TypeParam); ok {
		found := false
		for t := range typeSet(t.Underlying()) {
			_, isMap := t.Underlying().(*types.Map)
			found = found || isMap
		}
		return found
	}
	_, ok := t.Underlying().(*types.Map)
	return ok
}

// typeSet yields the terms of a constraint's unions, as far as they are
// written out.
func typeSet(t types.Type) func(func(types.Type) bool) {
	return func(yield func(types.Type) bool) {
		constraint, ok := t.(*types.Interface)
		if !ok {
			return
		}
		for embedded := range constraint.EmbeddedTypes() {
			union, ok := embedded.(*types.Union)
			if !ok {
				if !yield(embedded) {
					return
				}
				continue
			}
			for term := range union.Terms() {
				if !yield(term.Type()) {
					return
				}
			}
		}
	}
}

func isFloat(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&(types.IsFloat|types.IsComplex) != 0
}

func isPackageLevel(o types.Object, path string) bool {
	return o.Pkg() != nil && o.Pkg().Path() == path && o.Parent() == o.Pkg().Scope()
}

// isCallOf reports whether call calls one of the functions of package path.
func isCallOf(info *types.Info, call *ast.CallExpr, path string, names ...string) bool {
	fun := ast.Unparen(call.Fun)
	switch f := fun.(type) { // an explicit instantiation
	case *ast.IndexExpr:
		fun = f.X
	case *ast.IndexListExpr:
		fun = f.X
	}
	var id *ast.Ident
	switch f := fun.(type) {
	case *ast.SelectorExpr:
		id = f.Sel
	case *ast.Ident:
		id = f
	default:
		return false
	}
	o := info.Uses[id]
	if o == nil || !isPackageLevel(o, path) {
		return false
	}
	for _, name := range names {
		if o.Name() == name {
			return true
		}
	}
	return false
}
