package api

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/wire"
)

// TestTheRequestsOfTheAPIsPageWork sends each request that docs/api.md shows,
// in its order.
func TestTheRequestsOfTheAPIsPageWork(t *testing.T) {
	text, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	inBubble(t, func(t *testing.T, c *cluster) {
		c.must(&command.LabelsReplace{Host: "box", Instance: "agent-1", Sets: []command.DeviceLabels{
			{Name: "gpu0", Labels: []command.KV{{Key: "vram", Value: "80G"}}},
		}})
		c.raise()
		sent := 0
		for _, block := range strings.Split(string(text), "```http\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			head, body, _ := strings.Cut(block, "\n\n")
			first, rest, _ := strings.Cut(head, "\n")
			method, path, ok := strings.Cut(first, " ")
			if !ok {
				t.Fatalf("no request line in %q", block)
			}
			var headers []string
			for _, line := range strings.Split(strings.TrimSpace(rest), "\n") {
				name, value, _ := strings.Cut(line, ": ")
				headers = append(headers, name, strings.ReplaceAll(value, "TOKEN", clientToken))
			}
			resp, err := c.nodes["c2"].try(t.Context(), method, path, "", body, headers...)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusCreated {
				raw, _ := io.ReadAll(resp.Body)
				t.Errorf("%s: %d %s", first, resp.StatusCode, raw)
			}
			if strings.HasPrefix(path, pathEvents) { // it goes on; its beginning is enough
				if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != ": alive\n" {
					t.Errorf("%s: %q %v", first, line, err)
				}
			}
			resp.Body.Close()
			sent++
		}
		if sent < 10 || c.jobCount() != 5 {
			t.Errorf("%d requests sent, %d jobs made", sent, c.jobCount())
		}
	})
}

// TestTheBoundsOfTheEdgeAreDocumented holds the table of docs/limits.md against
// the build.
func TestTheBoundsOfTheEdgeAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## At the edge")
	table, _, _ = strings.Cut(table, "\n## ")
	thousands := func(n int) string {
		if n < 1000 {
			return fmt.Sprint(n)
		}
		return fmt.Sprintf("%d,%03d", n/1000, n%1000)
	}
	for _, row := range []string{
		"in hand at once | " + thousands(maxWrites) + " |",
		"together | " + thousands(maxReaders) + " |",
		"(`index`) | " + thousands(maxWaiters) + " |",
		fmt.Sprintf("one wait | %d min and a sixteenth |", int(maxWait.Minutes())),
		fmt.Sprintf("events kept | %s, and %d MiB |", thousands(maxEvents), maxEventBytes>>20),
		fmt.Sprintf("body | %d MiB |", wire.MaxBody>>20),
		"page of jobs | " + thousands(maxJobs) + " |",
	} {
		if !strings.Contains(table, row) {
			t.Errorf("docs/limits.md does not say %q", row)
		}
	}
	if waitJitter != 16 {
		t.Error("the jitter is no sixteenth")
	}
}
