package agent

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// numbering gives GPUs their numbers.
type numbering struct {
	of      map[string]int // number of a whole GPU by its UUID
	next    int            // above all that there were
	names   map[string]bool
	numbers map[int]bool
	begun   bool // some were given to GPUs that nobody had named
}

func (n *numbering) add(name string, r binding) {
	n.names[name] = true
	n.begun = n.begun || r.Auto
	number, part, ok := gpuNumber(name)
	if !ok {
		return
	}
	n.next, n.numbers[number] = max(n.next, number+1), true
	switch {
	case part == whole && r.Parent == "" && r.UUID != "":
		n.of[r.UUID] = number
	case part != whole && r.Parent != "":
		n.of[r.Parent] = number
	}
}

// name returns a new name for a unit. The first time a GPU has the number of its
// place, if that is free.
func (n *numbering) name(u unit) string {
	gpu := cmp.Or(u.parent, u.uuid)
	number, ok := n.of[gpu]
	switch {
	case ok && (u.part != whole || !n.names[gpuName(number, whole)]):
	case !n.begun && !n.numbers[u.place]:
		number = u.place
	default:
		number = n.next
	}
	part := u.part
	for part != whole && n.names[gpuName(number, part)] {
		part++
	}
	name, begun := gpuName(number, part), n.begun
	n.add(name, binding{UUID: u.uuid, Parent: u.parent})
	n.begun = begun
	return name
}

// gpuName is how a GPU, or an instance, is called that nobody has named.
func gpuName(number, part int) string {
	if part == whole {
		return fmt.Sprintf("gpu%d", number)
	}
	return fmt.Sprintf("gpu%d-mig%d", number, part)
}

// gpuNumber reads such a name.
func gpuNumber(name string) (number, part int, ok bool) {
	digits, ok := strings.CutPrefix(name, "gpu")
	if !ok {
		return 0, whole, false
	}
	digits, instance, isPart := strings.Cut(digits, "-mig")
	number, err := strconv.Atoi(digits)
	if part = whole; err == nil && isPart {
		part, err = strconv.Atoi(instance)
	}
	return number, part, err == nil && name == gpuName(number, part)
}

// byNumber orders names by the numbers in them.
func byNumber(a, b string) int {
	an, ap, _ := gpuNumber(a)
	bn, bp, _ := gpuNumber(b)
	return cmp.Or(cmp.Compare(an, bn), cmp.Compare(ap, bp), strings.Compare(a, b))
}

// trailingInteger returns the number that a name ends in.
func trailingInteger(name string) (int, bool) {
	digits := name[len(strings.TrimRight(name, "0123456789")):]
	n, err := strconv.ParseUint(digits, 10, 31)
	return int(n), err == nil
}
