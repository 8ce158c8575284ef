package api

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"rcd/fsm/command"
	"rcd/wire"
)

// object is a JSON object of the document; its keys come out sorted.
type object = map[string]any

// edgeStatus is the HTTP status of each code that the edge itself says.
var edgeStatus = map[string]int{
	wire.CodeUnauthorized:   http.StatusUnauthorized,
	wire.CodeForbidden:      http.StatusForbidden,
	wire.CodeBadRequest:     http.StatusBadRequest,
	wire.CodeAmbiguous:      http.StatusBadRequest,
	wire.CodeLogsNotStored:  http.StatusBadRequest,
	wire.CodeNotFound:       http.StatusNotFound,
	wire.CodeNoDevice:       http.StatusConflict,
	wire.CodeNotQueued:      http.StatusConflict,
	wire.CodeJobEnded:       http.StatusConflict,
	wire.CodeAgentTooOld:    http.StatusConflict,
	wire.CodeNotAttachable:  http.StatusBadRequest,
	wire.CodeNotPlaced:      http.StatusConflict,
	wire.CodeBodyTooLarge:   http.StatusRequestEntityTooLarge,
	wire.CodeStoreError:     http.StatusInternalServerError,
	wire.CodeNoLeader:       http.StatusServiceUnavailable,
	wire.CodeNotInCluster:   http.StatusServiceUnavailable,
	wire.CodeNotReady:       http.StatusServiceUnavailable,
	wire.CodeHalted:         http.StatusServiceUnavailable,
	wire.CodeOverloaded:     http.StatusServiceUnavailable,
	wire.CodeOutcomeUnknown: http.StatusGatewayTimeout,
}

// statusOfCode is the HTTP status that goes with a code.
func statusOfCode(code string) int {
	if status, ok := edgeStatus[code]; ok {
		return status
	}
	if status, ok := statusOf[command.Code(code)]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// allCodes are the codes of a route: its own and those of its sort.
func (r route) allCodes() []string {
	codes := slices.Clone(r.codes)
	if r.plain == nil {
		codes = append(codes, wire.CodeUnauthorized, wire.CodeForbidden, wire.CodeStoreError)
	}
	if r.plain == nil && !r.local {
		codes = append(codes, wire.CodeBadRequest, wire.CodeNoLeader, wire.CodeNotInCluster, wire.CodeHalted, wire.CodeOverloaded)
	}
	if r.write != nil {
		codes = append(codes, wire.CodeBodyTooLarge, wire.CodeOutcomeUnknown)
	}
	if r.write != nil && !r.unlogged {
		codes = append(codes, string(command.KeyReused), string(command.InternalInvariant))
	}
	slices.Sort(codes)
	return slices.Compact(codes)
}

// successStatus is the status of an answer that is no refusal.
func (r route) successStatus() int {
	if r.status == 0 {
		return http.StatusOK
	}
	return r.status
}

// document makes the OpenAPI document of the routes.
func (s *server) document() object {
	types := &schemas{known: object{}}
	paths := object{}
	for _, r := range s.routes() {
		method, path, _ := strings.Cut(r.pattern, " ")
		path = strings.TrimSuffix(path, "{$}")
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path].(object)[strings.ToLower(method)] = r.operation(method, path, types)
	}
	for _, shown := range []any{wire.Error{}, wire.Event{}, wire.JobEvent{}, wire.ClusterEvent{}, wire.EventReset{}} {
		types.of(shown)
	}
	return object{
		"openapi": "3.1.0",
		"info": object{
			"title":   "rc",
			"version": "1",
			"description": "Any controller answers. A request that changes something is carried to the leader under one request ID, so that trying " +
				"again with the same Idempotency-Key has one effect. Every answer, a refusal too, says who gave it in " +
				wire.HeaderInstance + " and " + wire.HeaderNode + ". Times are RFC 3339 in UTC. Fields that are not listed may appear and are to be ignored.",
		},
		"paths":    paths,
		"security": []any{object{"token": []any{}}},
		"components": object{
			"schemas":         types.known,
			"headers":         headersSaid,
			"securitySchemes": object{"token": object{"type": "http", "scheme": "bearer"}},
		},
	}
}

// headersSaid are the headers of answers.
var headersSaid = func() object {
	said := object{}
	for _, h := range [][3]string{
		{wire.HeaderInstance, "string", "A UUID that is new with each process of the controller."},
		{wire.HeaderNode, "string", "The controller that took the request."},
		{wire.HeaderIndex, "integer", "The entry of the log up to which the answer reflects the state."},
		{wire.HeaderLeader, "string", "The leader by whose word it does."},
		{wire.HeaderAge, "integer", "Of a stale answer: how old it may be, in milliseconds."},
		{wire.HeaderHeardAge, "integer", "Of a stale answer: how old its knowledge of heartbeats is, in milliseconds."},
		{wire.HeaderLogOffset, "integer", "The offset of the first byte of the body."},
		{wire.HeaderRequestID, "string", "With outcome_unknown: the request ID to ask again under."},
		{"Retry-After", "integer", "Seconds after which to ask again."},
	} {
		said[h[0]] = object{"description": h[2], "schema": object{"type": h[1]}}
	}
	return said
}()

func headerRefs(names ...string) object {
	refs := object{}
	for _, name := range names {
		refs[name] = object{"$ref": "#/components/headers/" + name}
	}
	return refs
}

func (r route) operation(method, path string, types *schemas) object {
	op := object{
		"summary":     r.summary,
		"operationId": operationID(method, path),
		"responses":   r.responses(types),
	}
	if r.plain != nil {
		op["security"] = []any{}
	} else if r.role != RoleClient {
		op["description"] = "For tokens of the role " + string(r.role) + " (and admin)."
	}
	parameters := []any{}
	if strings.Contains(path, "{id}") {
		parameters = append(parameters, object{"name": "id", "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	for _, p := range r.query {
		parameters = append(parameters, object{"name": p.name, "in": "query", "description": p.text, "schema": types.of(p.kind)})
	}
	if r.write != nil && !r.unlogged {
		parameters = append(parameters, object{
			"name": wire.HeaderRequestID, "in": "header", "schema": object{"type": "string", "maxLength": command.MaxRequestID - len("h:")},
			"description": "Names the request: the same one again has the one effect, another under it is refused.",
		})
	}
	if path == pathEvents {
		parameters = append(parameters, object{
			"name": "Last-Event-ID", "in": "header", "schema": object{"type": "string", "maxLength": longestEventID},
			"description": "Go on after this event.",
		})
	}
	if len(parameters) > 0 {
		op["parameters"] = parameters
	}
	if r.request != nil {
		op["requestBody"] = object{"required": !r.optional, "content": object{"application/json": object{"schema": types.of(r.request)}}}
	}
	return op
}

// operationID names an operation: getDevicesIdDescribe.
func operationID(method, path string) string {
	id := strings.ToLower(method)
	words := strings.FieldsFunc(strings.TrimPrefix(path, "/v1"), func(c rune) bool { return strings.ContainsRune("/{}:.", c) })
	if len(words) == 0 {
		words = []string{"page"}
	}
	for _, word := range words {
		id += strings.ToUpper(word[:1]) + word[1:]
	}
	return id
}

func (r route) responses(types *schemas) object {
	success := object{"description": http.StatusText(r.successStatus())}
	if r.plain == nil {
		success["headers"] = headerRefs(wire.HeaderIndex, wire.HeaderLeader)
	}
	switch body := r.response.(type) {
	case nil:
	case contentType:
		media, _, _ := strings.Cut(string(body), ";")
		success["content"] = object{media: object{"schema": object{"type": "string"}}}
	default:
		success["content"] = object{"application/json": object{"schema": types.of(body)}}
	}
	responses := object{strconv.Itoa(r.successStatus()): success}
	byStatus := map[int][]string{}
	for _, code := range r.allCodes() {
		byStatus[statusOfCode(code)] = append(byStatus[statusOfCode(code)], code)
	}
	if r.status == http.StatusSwitchingProtocols {
		byStatus[http.StatusUpgradeRequired] = []string{wire.CodeBadRequest}
	}
	for status, codes := range byStatus {
		refused := object{
			"description": http.StatusText(status) + ": " + strings.Join(codes, ", "),
			"content": object{"application/json": object{"schema": object{
				"allOf": []any{types.of(wire.Error{}), object{"properties": object{"error": object{"enum": codes}}}},
			}}},
		}
		responses[strconv.Itoa(status)] = refused
	}
	return responses
}

// openapi answers with the document, which is made at the first request.
func (s *server) openapi(w http.ResponseWriter, _ *http.Request) {
	_ = s.send(w, reply{status: http.StatusOK, raw: s.openapiText(), contentType: "application/json"})
}

func (s *server) openapiText() []byte {
	s.documentOnce.Do(func() {
		raw, err := json.MarshalIndent(s.document(), "", " ")
		if err != nil {
			panic("api: the OpenAPI document does not encode: " + err.Error())
		}
		s.documentText = append(raw, '\n')
	})
	return s.documentText
}

// documented is the document of a server, once it has been asked for.
type documented struct {
	documentOnce sync.Once
	documentText []byte
}
