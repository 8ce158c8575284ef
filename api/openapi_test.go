package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	source "go/token"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"rcd/fsm/command"
	"rcd/wire"
)

// theDocument is what a controller serves, read back.
var theDocument = sync.OnceValue(func() object {
	s := newServer(Config{Logger: slog.New(slog.DiscardHandler)}, nil)
	var doc object
	if err := json.Unmarshal(s.openapiText(), &doc); err != nil {
		panic(err)
	}
	return doc
})

// observed checks every answer that a test gets from the API against the
// document: the status, the code, and each field of a JSON body.
func observed(t *testing.T, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o := &observer{ResponseWriter: w, status: http.StatusOK}
		h.ServeHTTP(o, r)
		if r.Pattern == "" {
			return // no route
		}
		o.keep(r.Pattern)
		for _, wrong := range o.judge(r.Pattern) {
			t.Errorf("%s %s: the OpenAPI document does not know this answer: %s", r.Method, r.URL.Path, wrong)
		}
	})
}

// observer keeps what is answered.
type observer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (o *observer) WriteHeader(status int) {
	o.status = status
	o.ResponseWriter.WriteHeader(status)
}

func (o *observer) Write(p []byte) (int, error) {
	o.body.Write(p)
	return o.ResponseWriter.Write(p)
}

// Hijack is the end of what can be judged: frames follow.
func (o *observer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	o.status = http.StatusSwitchingProtocols
	return http.NewResponseController(o.ResponseWriter).Hijack()
}

func (o *observer) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// keep has the answer count as one that was seen.
func (o *observer) keep(pattern string) {
	method, path, _ := strings.Cut(pattern, " ")
	media, _, _ := strings.Cut(o.Header().Get("Content-Type"), ";")
	produced.answer(method, strings.TrimSuffix(path, "{$}"), o.status, media, o.body.Bytes())
}

func (o *observer) judge(pattern string) []string {
	method, path, _ := strings.Cut(pattern, " ")
	op, _ := at(theDocument(), "paths", strings.TrimSuffix(path, "{$}"), strings.ToLower(method)).(object)
	if op == nil {
		return []string{"no such operation"}
	}
	response, _ := at(op, "responses", strconv.Itoa(o.status)).(object)
	if response == nil {
		return []string{fmt.Sprintf("status %d %s", o.status, o.body.String())}
	}
	if o.Header().Get(wire.HeaderNode) == "" {
		return []string{"no " + wire.HeaderNode}
	}
	media, _, _ := strings.Cut(o.Header().Get("Content-Type"), ";")
	content, _ := response["content"].(object)
	if content == nil && o.body.Len() > 0 {
		return []string{fmt.Sprintf("a body of %d bytes", o.body.Len())}
	}
	if content == nil {
		return nil
	}
	if len(content) != 1 {
		return []string{"the document has several types of body"}
	}
	schema, known := at(content, media, "schema").(object)
	if !known {
		return []string{"a body of type " + media}
	}
	if media != "application/json" || path == "/openapi.json" {
		return nil
	}
	var body any
	if err := json.Unmarshal(o.body.Bytes(), &body); err != nil {
		return []string{err.Error()}
	}
	return misfits("", schema, body)
}

// at goes down a path of keys.
func at(o object, path ...string) any {
	var here any = o
	for _, key := range path {
		next, ok := here.(object)
		if !ok {
			return nil
		}
		here = next[key]
	}
	return here
}

// misfits says where a value does not fit a schema. Fields that the schema does
// not list do not fit.
func misfits(where string, schema object, value any) []string {
	if ref, ok := schema["$ref"].(string); ok {
		schema = at(theDocument(), strings.Split(strings.TrimPrefix(ref, "#/"), "/")...).(object)
	}
	if all, ok := schema["allOf"].([]any); ok {
		out := misfits(where, all[0].(object), value) // the others only narrow it
		code := value.(object)["error"]
		if codes := at(all[1].(object), "properties", "error", "enum").([]any); !slices.Contains(codes, code) {
			out = append(out, fmt.Sprintf("code %v", code))
		}
		return out
	}
	wrong := []string{fmt.Sprintf("%s is %v, want %v", where, value, schema["type"])}
	switch schema["type"] {
	case "object":
		fields, ok := value.(object)
		if !ok {
			return wrong
		}
		properties, _ := schema["properties"].(object)
		var out []string
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, there := fields[name.(string)]; !there {
				out = append(out, fmt.Sprintf("%s.%s is missing", where, name))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			of, known := properties[name].(object)
			if !known {
				of, known = schema["additionalProperties"].(object)
			}
			if !known {
				out = append(out, fmt.Sprintf("%s.%s is not documented", where, name))
				continue
			}
			out = append(out, misfits(where+"."+name, of, fields[name])...)
		}
		return out
	case "array":
		list, ok := value.([]any)
		if !ok {
			return wrong
		}
		var out []string
		for i, one := range list {
			out = append(out, misfits(fmt.Sprintf("%s[%d]", where, i), schema["items"].(object), one)...)
		}
		return out
	case "integer":
		if n, ok := value.(float64); !ok || n != float64(int64(n)) || schema["minimum"] != nil && n < 0 {
			return wrong
		}
	case "string":
		if _, ok := value.(string); !ok {
			return wrong
		}
	case "boolean":
		if _, ok := value.(bool); !ok {
			return wrong
		}
	}
	return nil
}

// TestTheDocumentIsKept compares what a controller serves with the copy beside
// the other documents, which shows each change of the API in review.
func TestTheDocumentIsKept(t *testing.T) {
	const kept = "../docs/openapi.json"
	inBubble(t, func(t *testing.T, c *cluster) {
		resp, raw := c.nodes["c2"].do("GET", "/openapi.json", "", "")
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("%d %v", resp.StatusCode, resp.Header)
		}
		if *update {
			if err := os.WriteFile(kept, []byte(raw), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(kept)
		if err != nil {
			t.Fatal(err)
		}
		if raw != string(want) {
			t.Error("docs/openapi.json is not what is served; look at the difference, and write it with go test ./api -run TestTheDocumentIsKept -update")
		}
	})
}

// TestEveryOperationIsServedForItsRole asks each operation of the document:
// without a token, with the least one and with an admin's.
func TestEveryOperationIsServedForItsRole(t *testing.T) {
	s := newServer(Config{}, nil)
	for _, r := range s.routes() {
		t.Run(r.pattern, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				method, path, _ := strings.Cut(r.pattern, " ")
				path = strings.NewReplacer("{id}", "j-1", "{$}", "").Replace(path)
				n := c.nodes["c1"]
				// A plain 404 or 405 is the mux's.
				status := func(token string) int {
					resp, err := n.try(t.Context(), method, path, token, "")
					if err != nil {
						t.Fatal(err)
					}
					defer resp.Body.Close()
					if (resp.StatusCode == 404 || resp.StatusCode == 405) && resp.Header.Get("Content-Type") != "application/json" {
						t.Errorf("not served: %d", resp.StatusCode)
					}
					return resp.StatusCode
				}
				if r.plain != nil {
					if got := status(""); got != 200 {
						t.Errorf("without a token: %d", got)
					}
					return
				}
				if got := status(""); got != 401 {
					t.Errorf("without a token: %d", got)
				}
				for token, role := range map[string]Role{clientToken: RoleClient, workerToken: RoleWorker, adminToken: RoleAdmin} {
					if got := status(token); (got == 403) != (role != r.role && role != RoleAdmin) {
						t.Errorf("role %s: %d", role, got)
					}
				}
			})
		})
	}
}

// TestNothingIsServedBesideTheRoutes looks at the source: a route that goes
// onto the mux by another way would not be in the document.
func TestNothingIsServedBesideTheRoutes(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	where := map[string]int{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(source.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if f, ok := call.Fun.(*ast.SelectorExpr); ok && (f.Sel.Name == "HandleFunc" || f.Sel.Name == "Handle") {
					where[name]++
				}
			}
			return true
		})
	}
	// In peers.go are the calls between controllers.
	if want := map[string]int{"routes.go": 3, "peers.go": 1}; !maps.Equal(where, want) {
		t.Errorf("routes are put on a mux in %v, want %v", where, want)
	}
}

// TestEveryCodeIsDocumented compares the codes of the edge, by its source, and
// of the lease table with those of the document.
func TestEveryCodeIsDocumented(t *testing.T) {
	documented := map[string]int{}
	for path, operations := range theDocument()["paths"].(object) {
		for method, op := range operations.(object) {
			for status, response := range op.(object)["responses"].(object) {
				schema, _ := at(response.(object), "content", "application/json", "schema").(object)
				all, _ := schema["allOf"].([]any)
				if all == nil {
					continue
				}
				for _, code := range at(all[1].(object), "properties", "error", "enum").([]any) {
					n, _ := strconv.Atoi(status)
					documented[code.(string)] = n
					if n != statusOfCode(code.(string)) && n != http.StatusUpgradeRequired {
						t.Errorf("%s %s: %s has status %d", method, path, code, n)
					}
				}
			}
		}
	}
	// What only controllers propose never comes back to a caller of the API.
	internal := codesOf(command.Unscheduled, command.SheetTooLarge, command.StaleCheckpoint, command.LimitExceeded, command.NoDevice, command.NotPlaced)
	for code := range statusOf {
		if _, known := documented[string(code)]; !known && !slices.Contains(internal, string(code)) {
			t.Errorf("code %s of the lease table is in no operation", code)
		}
	}
	for _, code := range edgeCodes(t) {
		if _, known := documented[code]; !known {
			t.Errorf("code %s of the edge is in no operation", code)
		}
		if edgeStatus[code] == 0 {
			t.Errorf("code %s has no status", code)
		}
	}
}

// edgeCodes reads the values of the constants wire.Code… from their source.
func edgeCodes(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(source.NewFileSet(), "../wire/api.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok && strings.HasPrefix(spec.Names[0].Name, "Code") {
			code, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			codes = append(codes, code)
		}
		return true
	})
	if len(codes) != len(edgeStatus) {
		t.Errorf("%d codes in wire, %d with a status", len(codes), len(edgeStatus))
	}
	return codes
}

// TestEveryFieldIsDocumented compares the structures of the wire, by
// reflection, with the schemas of their names.
func TestEveryFieldIsDocumented(t *testing.T) {
	for _, value := range []any{
		wire.Job{}, wire.JobView{}, wire.JobList{}, wire.SubmitRequest{}, wire.BatchRequest{}, wire.Batch{}, wire.KillRequest{},
		wire.Device{}, wire.DeviceView{}, wire.Label{}, wire.Describe{}, wire.State{}, wire.Explain{}, wire.ExplainedDevice{}, wire.Waiting{},
		wire.WaitReason{}, wire.WaitDevice{}, wire.ExpectedStart{}, wire.Error{}, wire.Event{}, wire.JobEvent{}, wire.ClusterEvent{}, wire.EventReset{},
		wire.RaftStatus{}, wire.RaftPeers{}, wire.RaftLog{}, wire.Settings{}, wire.HeartbeatRequest{}, wire.HeartbeatAnswer{}, wire.Members{}, wire.Retired{}, wire.Ready{}, wire.Whoami{},
	} {
		kind := reflect.TypeOf(value)
		schema, _ := at(theDocument(), "components", "schemas", kind.Name()).(object)
		properties, _ := schema["properties"].(object)
		for _, f := range reflect.VisibleFields(kind) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if _, there := properties[name]; !f.Anonymous && !there {
				t.Errorf("%s.%s is not in the document", kind.Name(), name)
			}
		}
	}
}

// TestTheCheckOfAnswersFails: a check that cannot fail is worse than none.
func TestTheCheckOfAnswersFails(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter){
		"a status":      func(w http.ResponseWriter) { w.WriteHeader(418) },
		"a field":       func(w http.ResponseWriter) { io.WriteString(w, `{"role":"client","age":7}`) },
		"a missing one": func(w http.ResponseWriter) { io.WriteString(w, `{}`) },
		"a type":        func(w http.ResponseWriter) { io.WriteString(w, `{"role":7}`) },
		"a null":        func(w http.ResponseWriter) { io.WriteString(w, `{"role":null}`) },
		"a code": func(w http.ResponseWriter) {
			w.WriteHeader(409)
			io.WriteString(w, `{"error":"not_queued","message":"x"}`)
		},
		"no body": func(w http.ResponseWriter) {},
	} {
		o := &observer{ResponseWriter: httptest.NewRecorder(), status: 200}
		o.Header().Set("Content-Type", "application/json")
		o.Header().Set(wire.HeaderNode, "c1")
		answer(o)
		if wrong := o.judge("GET /v1/whoami"); len(wrong) == 0 {
			t.Errorf("%s is not noticed", name)
		}
	}
}
