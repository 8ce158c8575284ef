package tidy

import (
	"slices"
	"strconv"
	"strings"
)

// checkImports holds the package against floors and owners.
func checkImports(r *report, p *pkg) {
	floor, placed := floors[p.rel]
	if isBeside(p.rel) {
		return
	}
	if !placed {
		for _, f := range p.files {
			r.at(f.syntax.Package, "package %q has no floor; give it one in internal/tidy", p.rel)
			return
		}
	}
	for _, f := range p.files {
		for _, spec := range f.syntax.Imports {
			path, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				r.at(spec.Pos(), "import %s is not a string", spec.Path.Value)
				continue
			}
			if path == p.path {
				continue // an external test of the package itself
			}
			var why string
			if below(path, r.module.path) {
				rel := strings.TrimPrefix(strings.TrimPrefix(path, r.module.path), "/")
				why = whyNotFloor(rel, floor, f.test)
			} else {
				why = whyNotOwner(path, p.rel, f.test)
			}
			if why != "" {
				r.at(spec.Pos(), "%s may not import %s: %s", p.rel, path, why)
			}
		}
	}
}

// whyNotFloor returns why a file on floor may not import the module's package
// rel, or "".
func whyNotFloor(rel string, floor int, test bool) string {
	if isBeside(rel) {
		if test {
			return ""
		}
		return "only tests import what stands beside the floors"
	}
	theirs, ok := floors[rel]
	switch {
	case !ok:
		return "it has no floor"
	case theirs >= floor:
		return "floor " + strconv.Itoa(theirs) + " is not below floor " + strconv.Itoa(floor)
	}
	return ""
}

// whyNotOwner returns why package rel may not import path, which is outside
// the module, or "".
func whyNotOwner(path, rel string, test bool) string {
	if first, _, _ := strings.Cut(path, "/"); !strings.Contains(first, ".") {
		return "" // the standard library
	}
	for root, who := range owners {
		if !below(path, root) {
			continue
		}
		if slices.Contains(who, anyone) || slices.Contains(who, rel) || (test && slices.Contains(who, testsOnly)) {
			return ""
		}
		return "it belongs to " + strings.Join(who, ", ")
	}
	return "it has no owner; name one in internal/tidy"
}
