package api

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// TestMain demands, after a run of all tests, that they have seen whatever the
// OpenAPI document declares: each status and code of each operation, and each
// field of each answer with something in it.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 && everyTestRan() {
		if holes := produced.holes(theDocument()); len(holes) > 0 {
			fmt.Printf("the OpenAPI document declares what no test of this package has seen:\n  %s\n", strings.Join(holes, "\n  "))
			code = 1
		}
	}
	os.Exit(code)
}

// everyTestRan reports whether no flag has left tests out.
func everyTestRan() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.fuzz"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return true
}

// produced is what the answers of all tests had in them.
var produced = &collection{seen: map[string]bool{}}

type collection struct {
	mu   sync.Mutex // guards seen
	seen map[string]bool
}

func (c *collection) add(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[fmt.Sprintf(format, args...)] = true
}

// answer takes one answer that fits the document.
func (c *collection) answer(method, path string, status int, media string, body []byte) {
	c.add("%s %s %d", method, path, status)
	schema, _ := at(theDocument(), "paths", path, strings.ToLower(method), "responses", strconv.Itoa(status), "content", media, "schema").(object)
	switch {
	case media == "text/event-stream":
		c.events(string(body))
	case media == "application/json" && schema != nil:
		var value any
		if json.Unmarshal(body, &value) != nil {
			return
		}
		if fields, ok := value.(object); ok && status >= http.StatusBadRequest {
			c.add("%s %s %d %v", method, path, status, fields["error"])
		}
		c.fields(schema, value)
	}
}

// events takes the messages of a stream.
func (c *collection) events(text string) {
	for line := range strings.Lines(text) {
		data, found := strings.CutPrefix(line, "data: ")
		var event object
		if !found || json.Unmarshal([]byte(data), &event) != nil {
			continue
		}
		of := func(name string) object { return object{"$ref": "#/components/schemas/" + name} }
		c.fields(of("Event"), event)
		switch payload := event["payload"]; event["kind"] {
		case "jobs":
			c.fields(of("JobEvent"), payload)
		case "devices":
			c.fields(object{"items": of("DeviceView")}, payload)
		case "reset":
			c.fields(of("EventReset"), payload)
		default:
			c.fields(of("ClusterEvent"), payload)
		}
	}
}

// fields notes which fields of a value have something in them.
func (c *collection) fields(schema object, value any) {
	name := ""
	if ref, ok := schema["$ref"].(string); ok {
		name = ref[strings.LastIndex(ref, "/")+1:]
		schema = at(theDocument(), "components", "schemas", name).(object)
	}
	if all, ok := schema["allOf"].([]any); ok {
		c.fields(all[0].(object), value)
		return
	}
	switch value := value.(type) {
	case object:
		properties, _ := schema["properties"].(object)
		for field, of := range properties {
			if !empty(value[field]) {
				c.add("%s.%s", name, field)
				c.fields(of.(object), value[field])
			}
		}
		if each, ok := schema["additionalProperties"].(object); ok {
			for _, one := range value {
				c.fields(each, one)
			}
		}
	case []any:
		for _, one := range value {
			if items, ok := schema["items"].(object); ok {
				c.fields(items, one)
			}
		}
	}
}

func empty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == "" || strings.HasPrefix(value, "0001-01-01")
	case float64:
		return value == 0
	case bool:
		return !value
	case []any:
		return len(value) == 0
	case object:
		return len(value) == 0
	}
	return false
}

// unseen are what no test of this package can see, with the reason.
var unseen = map[string]string{
	"GET /v1/whoami 500":             "it asks nothing that could fail or panic",
	"GET /v1/whoami 500 store_error": "see there",
	"Job.devices":                    "no job has several devices yet",

	"POST /v1/jobs/{id}/heartbeat 504":                 "only if the leader changes under one that a follower has handed on",
	"POST /v1/jobs/{id}/heartbeat 504 outcome_unknown": "see there",
}

// holes lists what the document declares and nobody has seen.
func (c *collection) holes(doc object) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []string
	want := func(what string) {
		switch _, excused := unseen[what]; {
		case !c.seen[what] && !excused:
			all = append(all, what)
		case c.seen[what] && excused:
			all = append(all, what+" is seen: take it out of unseen")
		}
	}
	schemas := map[string]bool{"Event": true, "JobEvent": true, "ClusterEvent": true, "EventReset": true}
	for path, operations := range doc["paths"].(object) {
		for method, op := range operations.(object) {
			for status, response := range op.(object)["responses"].(object) {
				what := strings.ToUpper(method) + " " + path + " " + status
				want(what)
				schema, _ := at(response.(object), "content", "application/json", "schema").(object)
				refers(doc, schema, schemas)
				if declared, ok := schema["allOf"].([]any); ok {
					for _, code := range at(declared[1].(object), "properties", "error", "enum").([]any) {
						want(fmt.Sprintf("%s %v", what, code))
					}
				}
			}
		}
	}
	for name := range schemas {
		for field := range at(doc, "components", "schemas", name, "properties").(object) {
			want(name + "." + field)
		}
	}
	slices.SortFunc(all, func(a, b string) int { return cmp.Compare(a, b) })
	return all
}

// refers collects the structures that a schema is made of.
func refers(doc, schema object, into map[string]bool) {
	if ref, ok := schema["$ref"].(string); ok {
		name := ref[strings.LastIndex(ref, "/")+1:]
		if into[name] {
			return
		}
		into[name] = true
		schema = at(doc, "components", "schemas", name).(object)
	}
	if all, ok := schema["allOf"].([]any); ok {
		refers(doc, all[0].(object), into)
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if of, ok := schema[key].(object); ok {
			refers(doc, of, into)
		}
	}
	properties, _ := schema["properties"].(object)
	for _, field := range slices.Sorted(maps.Keys(properties)) {
		refers(doc, properties[field].(object), into)
	}
}
