package probe

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// xidTable is the table of docs/hosts.md: what means the device first, numbers
// with the same words in one line.
func xidTable() string {
	var b strings.Builder
	b.WriteString("| XID | means | what it is |\n|---|---|---|\n")
	for _, m := range []Meaning{MeansDevice, MeansJob, MeansIgnore} {
		var texts []string
		numbers := map[string][]uint64{}
		for _, x := range Table() {
			if x.Meaning != m {
				continue
			}
			if numbers[x.Text] == nil {
				texts = append(texts, x.Text)
			}
			numbers[x.Text] = append(numbers[x.Text], x.Number)
		}
		for _, text := range texts {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", ranges(numbers[text]), m, text)
		}
	}
	return b.String()
}

// ranges joins sorted numbers: "8, 39-41".
func ranges(numbers []uint64) string {
	var parts []string
	for len(numbers) > 0 {
		n := 1
		for n < len(numbers) && numbers[n] == numbers[0]+uint64(n) {
			n++
		}
		part := fmt.Sprint(numbers[0])
		if n > 1 {
			part += fmt.Sprintf("-%d", numbers[n-1])
		}
		parts, numbers = append(parts, part), numbers[n:]
	}
	return strings.Join(parts, ", ")
}

func TestTheDocumentedXIDsAreThoseOfTheBuild(t *testing.T) {
	data, err := os.ReadFile("../../docs/hosts.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := xidTable(); !strings.Contains(string(data), "\n"+want+"\n") {
		t.Errorf("docs/hosts.md has not this table:\n%s", want)
	}
}

func TestRangesOfNumbers(t *testing.T) {
	if got := ranges(slices.Sorted(slices.Values([]uint64{39, 8, 41, 40, 85}))); got != "8, 39-41, 85" {
		t.Error(got)
	}
}
