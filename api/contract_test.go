package api

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

// transcript is one request to the ancestor with what it answered.
type transcript struct {
	Name    string
	Request struct {
		Method, Path, Role string
		Body               json.RawMessage
	}
	Response struct {
		Status      int
		ContentType string `json:"content_type"`
		JSON        json.RawMessage
		Text        *string
	}
}

// ourFields may be in an answer beyond what the ancestor said.
var ourFields = []string{
	"lease", "devices", "output", "output_bytes", "late_exit_code", "origin",
	"waiting", "reasons", "tolerating", "expected_start",
	"automatic_returns_left", "automatic_returns_window_seconds",
	"quarantine_category", "next_cursor",
}

// between is what happens on the host before a line of the transcripts.
var between = map[string]func(c *cluster, number uint64){
	"get failed": func(c *cluster, n uint64) {
		c.start(n)
		c.spool(n).print("out\nerr\n")
		c.finish(n, command.EndExited, 3, "")
	},
	"get succeeded":                 func(c *cluster, n uint64) { c.start(n); c.finish(n, command.EndExited, 0, "") },
	"idempotent repeat, other body": func(c *cluster, n uint64) { c.start(n); c.finish(n, command.EndExited, 0, "") },
	"get hold":                      func(c *cluster, n uint64) { c.start(n) },
	"get ended hold":                func(c *cluster, n uint64) { c.finish(n, command.EndKilled, 143, "cancelled") },
	"get running":                   func(c *cluster, n uint64) { c.start(n) },
	"get killed running":            func(c *cluster, n uint64) { c.finish(n, command.EndKilled, 143, "cancelled") },
	"get watchdog": func(c *cluster, n uint64) {
		c.start(n)
		c.finish(n, command.EndKilled, 143, "max_runtime exceeded (1s)")
	},
	"get idle": func(c *cluster, n uint64) { c.start(n); c.finish(n, command.EndKilled, 143, "idle: no output for 1s") },
	"get cannot start": func(c *cluster, n uint64) {
		c.finish(n, command.EndStartFailed, -1, "start: fork/exec /no/such/program: no such file or directory")
	},
	"jobs limit": func(c *cluster, n uint64) { c.start(n); c.finish(n, command.EndExited, 0, "") },
}

// subject names the submit whose job a line's <id> is; other lines mean the
// latest job.
var subject = map[string]string{
	"get queued":                  "submit queued behind hold",
	"get queued, higher priority": "submit queued second",
	"kill by another":             "submit queued behind hold",
	"kill queued":                 "submit queued behind hold",
	"get killed queued":           "submit queued behind hold",
	"kill queued as admin":        "submit queued second",
	"get killed by admin":         "submit queued second",
	"kill hold":                   "hold",
	"get ended hold":              "hold",
}

var tokenOf = map[string]string{"client": clientToken, "worker": workerToken, "admin": adminToken, "none": "", "bad": "tok-of-nobody"}

// TestAncestorsTranscripts sends what the ancestor was sent, to the leader and
// then, on a fresh cluster, to a follower: status, content type and JSON are
// the ancestor's, whoever answers.
func TestAncestorsTranscripts(t *testing.T) {
	for _, asked := range []string{"c1", "c2"} {
		t.Run(asked, func(t *testing.T) { runTranscripts(t, asked) })
	}
}

func runTranscripts(t *testing.T, asked string) {
	c := newCluster(t, "c1", "c2")
	c.register()
	c.must(&command.SheetPut{Host: "box", Instance: "agent-1", Sheets: []command.SheetText{{Body: "# box\nScratch is in the usual place.\n"}}})
	ids := map[string]string{}
	latest := ""
	for _, line := range readTranscripts(t) {
		id := latest
		if name, ok := subject[line.Name]; ok {
			id = ids[name]
		}
		if prepare := between[line.Name]; prepare != nil {
			number, _ := model.ParseJobID(id)
			prepare(c, number)
		}
		body := ""
		var text string
		switch {
		case json.Unmarshal(line.Request.Body, &text) == nil:
			body = text // raw, as it was sent
		case string(line.Request.Body) != "null":
			body = string(line.Request.Body)
		}
		resp, raw := c.nodes[asked].do(line.Request.Method, strings.ReplaceAll(line.Request.Path, "<id>", id), tokenOf[line.Request.Role], body)
		want := line.Response
		if resp.StatusCode != want.Status || resp.Header.Get("Content-Type") != want.ContentType {
			t.Errorf("%s: got %d %q %s\nwant %d %q", line.Name, resp.StatusCode, resp.Header.Get("Content-Type"), raw, want.Status, want.ContentType)
			continue
		}
		if resp.Header.Get(wire.HeaderInstance) != "instance-of-"+asked {
			t.Errorf("%s: instance %q", line.Name, resp.Header.Get(wire.HeaderInstance))
		}
		if want.Text != nil && !masked(*want.Text, raw) {
			t.Errorf("%s: got %q, want %q", line.Name, raw, *want.Text)
		}
		if string(want.JSON) != "null" {
			compareJSON(t, line.Name, want.JSON, raw)
		}
		if line.Request.Method == "POST" && resp.StatusCode == 201 {
			latest = decode[wire.Job](t, raw).ID
			ids[line.Name] = latest
		}
	}
}

func readTranscripts(t *testing.T) []transcript {
	t.Helper()
	raw, err := os.ReadFile("testdata/transcripts.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var lines []transcript
	for _, text := range bytes.Split(bytes.TrimSpace(raw), []byte("\n")) {
		var line transcript
		if err := json.Unmarshal(text, &line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if len(lines) != 93 {
		t.Fatalf("%d transcripts, want 93", len(lines))
	}
	return lines
}

func compareJSON(t *testing.T, name string, want json.RawMessage, raw string) {
	t.Helper()
	var w, g any
	if err := json.Unmarshal(want, &w); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(raw), &g); err != nil {
		t.Errorf("%s: %v in %q", name, err, raw)
		return
	}
	for _, difference := range differences("", w, g) {
		t.Errorf("%s: %s\nin %s", name, difference, raw)
	}
}

// differences says where got is not what want says, volatile values aside.
func differences(path string, want, got any) []string {
	wrong := []string{fmt.Sprintf("%s is %v, want %v", path, got, want)}
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return wrong
		}
		var out []string
		if each, ok := w["<id>"]; ok { // a map by IDs
			if len(g) == 0 {
				return wrong
			}
			for _, key := range slices.Sorted(maps.Keys(g)) {
				out = append(out, differences(path+"."+key, each, g[key])...)
			}
			return out
		}
		for _, key := range slices.Sorted(maps.Keys(w)) {
			if _, ok := g[key]; !ok {
				out = append(out, path+"."+key+" is missing")
				continue
			}
			out = append(out, differences(path+"."+key, w[key], g[key])...)
		}
		for _, key := range slices.Sorted(maps.Keys(g)) {
			if _, ok := w[key]; !ok && !slices.Contains(ourFields, key) {
				out = append(out, path+"."+key+" is too much")
			}
		}
		return out
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return wrong
		}
		var out []string
		for i := range w {
			out = append(out, differences(fmt.Sprintf("%s[%d]", path, i), w[i], g[i])...)
		}
		return out
	case string:
		switch g := got.(type) {
		case string:
			if masked(w, g) {
				return nil
			}
		case float64:
			if w == "<int>" && g == float64(int64(g)) {
				return nil
			}
		}
		return wrong
	}
	if want != got {
		return wrong
	}
	return nil
}

var wholeSeconds = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`)

func masked(want, got string) bool {
	switch want {
	case "<id>", "<value>", "<text>":
		return got != ""
	case "<time>":
		return wholeSeconds.MatchString(got)
	case "<int>":
		return false
	}
	return want == got
}
