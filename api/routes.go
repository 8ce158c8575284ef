package api

import (
	"net/http"

	"rcd/fsm/command"
	"rcd/wire"
)

// route is one route of the API: what serves it and what is said of it. The
// mux and the OpenAPI document are made of the same list.
type route struct {
	pattern string // as http.ServeMux takes it
	role    Role   // "": no token is needed
	write   attempt
	read    handler
	plain   http.HandlerFunc // that cannot fail, without a token

	// edge: served to clients only, never forwarded.
	edge bool
	// local: answered without the lease table, so also without a leader or
	// halted, and never for want of room.
	local bool
	// unlogged, of a write: the leader only remembers it, so that a request ID
	// has nothing to name.
	unlogged bool

	summary  string
	query    []parameter
	request  any  // a value of the body's type; nil: none
	optional bool // the body may be left out
	status   int  // of success; 0: 200
	response any  // a value of the answer's type, or a contentType; nil: an empty body
	codes    []string
}

// contentType is the answer of a route that is no JSON.
type contentType string

// parameter is one of a route's query.
type parameter struct {
	name, text string
	kind       any // a value of its type
}

// Query parameters that several routes have.
var (
	staleParams = []parameter{
		{"consistency", "linearizable (the default) or stale: this node's state as it is, with its age in Rc-Age-Ms", ""},
		{"stale", "the same as consistency=stale", false},
	}
	waitParams = append([]parameter{
		{"index", "the Rc-Index of the answer that you have: wait until something that concerns the answer has happened since", uint64(0)},
		{"wait", "for at most how long, such as 30s (the default) or 5m (the most), and up to a sixteenth more", ""},
	}, staleParams...)
	outputParams = append([]parameter{
		{"offset", "of the first byte, from 0", uint64(0)},
		{"follow", "go on as more is written, until the end of the job (the default)", true},
	}, staleParams...)
)

// routes lists everything that is served.
func (s *server) routes() []route {
	return append(s.jobRoutes(), append(s.fleetRoutes(), s.edgeRoutes()...)...)
}

func (s *server) jobRoutes() []route {
	return []route{
		{
			pattern: "POST /v1/jobs", role: RoleClient, write: s.submit,
			summary: "Submit a job, or a hold. It is placed or queued when the answer comes. One inside a hold of yours is placed at once.",
			request: wire.SubmitRequest{}, status: http.StatusCreated, response: wire.Job{},
			codes: append(enqueueCodes(), wire.CodeNoDevice),
		}, {
			pattern: "POST /v1/jobs:batch", role: RoleClient, write: s.submitBatch,
			summary: "Submit an array of jobs, all or none, under one request ID.",
			request: wire.BatchRequest{}, status: http.StatusCreated, response: wire.Batch{},
			codes: append(enqueueCodes(), string(command.ArrayTooLarge)),
		}, {
			pattern: "GET /v1/jobs", role: RoleClient, read: s.jobs,
			summary: "List jobs, newest first.",
			query: append([]parameter{
				{"limit", "how many, 1 to 200 (20)", 0},
				{"device", "only those on, or pinned to, this device", ""},
				{"submitter", "only those of this submitter", ""},
				{"state", "only those in this state", ""},
				{"hold", "only those inside this hold, by its whole ID", ""},
				{"cursor", "the next_cursor of the page before, which knows the filters and the limit", ""},
			}, waitParams...),
			response: wire.JobList{},
		}, {
			pattern: "GET /v1/jobs/{id}", role: RoleClient, read: s.job,
			summary: "Show one job by its ID or a prefix that fits no other; while it is queued, with its place and why it waits.",
			query:   waitParams, response: wire.JobView{},
			codes: []string{wire.CodeNotFound, wire.CodeAmbiguous},
		}, {
			pattern: "POST /v1/jobs/{id}/kill", role: RoleClient, write: s.kill,
			summary: "Ask for the end of a job. A queued one is cancelled at once; what becomes of a running one shows in the job.",
			request: wire.KillRequest{}, codes: ownedCodes(command.NotCancellable),
		}, {
			pattern: "POST /v1/jobs/{id}/extend", role: RoleClient, write: s.extend,
			summary: "Lengthen the runtime of a job, within the ceiling of its device.",
			request: wire.ExtendRequest{}, response: wire.Job{},
			codes: ownedCodes(command.NotExtendable, command.RuntimeAboveLimit),
		}, {
			pattern: "POST /v1/jobs/{id}/release", role: RoleClient, write: s.release,
			summary: "Give the lease of a hold, or of a job, back.",
			request: wire.ReleaseRequest{}, response: wire.Job{}, codes: ownedCodes(command.NotReleasable),
		}, {
			pattern: "POST /v1/jobs/{id}/heartbeat", role: RoleClient, write: s.heartbeat, unlogged: true,
			summary: "Say that the client of a hold with a session is there. Without a word for session_seconds the hold ends.",
			request: wire.HeartbeatRequest{}, optional: true, response: wire.HeartbeatAnswer{},
			codes: append(ownedCodes(), wire.CodeJobEnded),
		}, {
			pattern: "GET /v1/jobs/{id}/logs", role: RoleClient, read: s.logs,
			summary: "Read a job's output as plain bytes.",
			query:   outputParams, response: contentType("text/plain; charset=utf-8"),
			codes: []string{wire.CodeNotFound, wire.CodeAmbiguous, wire.CodeLogsNotStored},
		}, {
			pattern: "GET /v1/jobs/{id}/stream", role: RoleClient, read: s.stream,
			summary: "Read a job's output in frames that resume at any offset, over an upgraded connection (Upgrade: " + wire.StreamProtocol + ").",
			query:   outputParams, status: http.StatusSwitchingProtocols,
			codes: []string{wire.CodeNotFound, wire.CodeAmbiguous, wire.CodeLogsNotStored},
		}, {
			pattern: "GET /v1/jobs/{id}/attach", role: RoleClient, read: s.attach,
			summary: "Attach to a job's terminal or pipe: its output, and for one writer its input, in frames that resume at any offset, " +
				"over an upgraded connection (Upgrade: " + wire.StreamProtocol + ").",
			query: append([]parameter{
				{"offset", "of the first byte of output, from 0", uint64(0)},
				{"take_over", "become the writer, whoever it is now; the first ack of input says under which number, and where input goes on", false},
				{"input_only", "with a writer: send no output", false},
				{"writer", "go on as the writer with this number, after a break", uint64(0)},
				{"window", "of a writer: how many bytes it would have under way without an ack; each ack of input then says how many it may, " +
					"which is 65536 if it does not", uint64(0)},
				{"submitter", "whose job it is, of a writer without an admin token", ""},
			}, staleParams...),
			status: http.StatusSwitchingProtocols,
			codes: []string{wire.CodeNotFound, wire.CodeAmbiguous, wire.CodeNotAttachable, wire.CodeNotPlaced, wire.CodeNotReady,
				string(command.NotJobOwner)},
		},
	}
}

func (s *server) fleetRoutes() []route {
	return []route{
		{
			pattern: "GET /v1/devices", role: RoleClient, read: s.devices,
			summary: "List the fleet by ID, and who holds what.",
			query:   waitParams, response: []wire.DeviceView{},
		}, {
			pattern: "GET /v1/devices/{id}/describe", role: RoleClient, read: s.describe,
			summary: "Tell all that is known of one device: labels, usage sheet, recent jobs.",
			query:   waitParams, response: wire.Describe{}, codes: []string{wire.CodeNotFound},
		}, {
			pattern: "POST /v1/devices/{id}/clear", role: RoleAdmin, write: s.clear,
			summary: "Return a quarantined device to the pool, on an operator's word that it is free.",
			codes:   []string{string(command.DeviceNotCleared)},
		}, {
			pattern: "POST /v1/devices/{id}/fault", role: RoleWorker, write: s.fault,
			summary: "Take a device out of the pool until an operator clears it.",
			request: wire.FaultRequest{}, codes: []string{string(command.DeviceNotFound)},
		}, {
			pattern: "DELETE /v1/devices/{id}", role: RoleAdmin, write: s.retire,
			summary:  "Take a device out of the fleet.",
			response: wire.Retired{}, codes: []string{string(command.DeviceNotFound), string(command.DeviceBusy)},
		}, {
			pattern: "DELETE /v1/hosts/{id}", role: RoleAdmin, write: s.retireHost,
			summary:  "Take a host that is gone out of the fleet, with its devices.",
			response: wire.Retired{}, codes: []string{wire.CodeNotFound, string(command.DeviceBusy)},
		}, {
			pattern: "GET /v1/explain", role: RoleClient, read: s.explain,
			summary: "Say what would become of a job with a selector, or why a queued job waits.",
			query: append([]parameter{
				{"selector", "of a job that is not submitted", ""},
				{"max_runtime_seconds", "that it would ask for", uint64(0)},
				{"job", "a queued job, instead", ""},
			}, staleParams...),
			response: wire.Explain{},
			codes:    []string{string(command.BadSelector), wire.CodeNotFound, wire.CodeAmbiguous, wire.CodeNotQueued},
		}, {
			pattern: "GET /v1/state", role: RoleClient, read: s.state,
			summary: "Show the fleet, the jobs that hold devices and the whole queue in its order.",
			query:   waitParams, response: wire.State{},
		}, {
			pattern: "GET /v1/whoami", role: RoleClient, read: s.whoami, local: true,
			summary: "Say which role the token has.", response: wire.Whoami{},
		}, {
			pattern: "GET /v1/settings", role: RoleClient, read: s.settings,
			summary: "Show the replicated settings.", query: staleParams, response: wire.Settings{},
		}, {
			pattern: "PATCH /v1/settings", role: RoleAdmin, write: s.setSettings,
			summary: "Change the settings that the body names, all or none.",
			request: map[string]int64{}, response: wire.Settings{},
			codes: []string{string(command.UnknownSetting), string(command.SettingRefused)},
		}, {
			pattern: "GET /v1/members", role: RoleClient, read: s.members,
			summary: "Show the feature level and each controller's own word.",
			query:   staleParams, response: wire.Members{},
		},
	}
}

// halfCodes are why a half of an attached job's streams is refused.
var halfCodes = []string{wire.CodeNotFound, wire.CodeAmbiguous, wire.CodeNotAttachable, wire.CodeNotReady}

// edgeRoutes are those that each node answers for itself.
func (s *server) edgeRoutes() []route {
	routes := []route{
		{
			pattern: "GET /v1/jobs/{id}/tty/out", role: RoleClient, read: s.ttyOut,
			summary: "Read what a job on a terminal or a pipe prints, from the beginning, as plain bytes; a break ends it. The attach route resumes.",
			query:   staleParams, response: contentType("application/octet-stream"), codes: halfCodes,
		}, {
			pattern: "POST /v1/jobs/{id}/tty/in", role: RoleClient, read: s.ttyIn,
			summary: "Write to a job on a terminal (lines of JSON: d with base64 in b, r with rows and cols) or a pipe (plain bytes) as the body is sent, " +
				"in place of whoever wrote before. The attach route resumes.",
			query: staleParams, response: contentType("application/octet-stream"), codes: halfCodes,
		}, {
			pattern: "GET " + pathEvents, role: RoleClient, read: s.streamEvents,
			summary: "Follow what happens, as server-sent events whose data is an Event. Each has an ID under which a reader goes on, on any node; " +
				"a message of type reset says that events are missing.",
			query: []parameter{
				{"kinds", "jobs, devices, cluster; some of them, with commas (jobs,devices)", ""},
				{"last_event_id", "the same as the header Last-Event-ID: go on after this event, or after an Rc-Index", ""},
				{"token", "instead of the Authorization header; off unless the controller was started with --events-token-in-url", ""},
			},
			response: contentType("text/event-stream"),
		}, {
			pattern: "GET /v1/raft/status", role: RoleClient, read: s.raftStatus, local: true,
			summary: "Show this node's own view of the cluster, also without a leader.", response: wire.RaftStatus{},
		}, {
			pattern: "GET /v1/raft/peers", role: RoleClient, read: s.raftPeers, local: true,
			summary: "List the controllers as this node reaches them.", response: wire.RaftPeers{}, codes: []string{wire.CodeNotInCluster},
		}, {
			pattern: "GET /v1/raft/log", role: RoleClient, read: s.raftLog, local: true,
			summary: "Show entries of this node's log, secrets redacted.",
			query: []parameter{
				{"since", "the first entry (0: the last ones)", uint64(0)}, {"n", "how many, 1 to 1000 (20)", 0},
			},
			response: wire.RaftLog{}, codes: []string{wire.CodeBadRequest, wire.CodeNotInCluster},
		}, {
			pattern: "GET /healthz", plain: s.healthz,
			summary: "Say that the process lives.", response: contentType("text/plain; charset=utf-8"),
		}, {
			pattern: "GET /readyz", plain: s.readyz,
			summary:  "Say whether this node can answer requests, and why not.",
			response: wire.Ready{}, codes: []string{wire.CodeNotReady, wire.CodeNoLeader, wire.CodeNotInCluster, wire.CodeHalted},
		}, {
			pattern: "GET /openapi.json", plain: s.openapi,
			summary: "Give this document.", response: contentType("application/json"),
		}, {
			pattern: "GET /{$}", plain: s.root,
			summary: "Show a page that says what this address is.", response: contentType("text/html; charset=utf-8"),
		},
	}
	for i := range routes {
		routes[i].edge = true
	}
	return routes
}

// enqueueCodes are why the lease table refuses a job.
func enqueueCodes() []string {
	return append(codesOf(command.BadSelector, command.PriorityOutOfRange, command.UnknownDevice, command.NoMatchingDevice,
		command.RuntimeAboveLimit, command.EnvTooLarge, command.QueueFull, command.TooManySelectors,
		command.NotFound, command.NotJobOwner, command.HoldEnded, command.HoldWaiting, command.HoldFull, command.FeatureRefused), wire.CodeAgentTooOld)
}

// ownedCodes are those of routes that change somebody's job.
func ownedCodes(more ...command.Code) []string {
	return append(codesOf(more...), wire.CodeNotFound, string(command.NotJobOwner))
}

func codesOf(codes ...command.Code) []string {
	out := make([]string, len(codes))
	for i, code := range codes {
		out[i] = string(code)
	}
	return out
}

// register puts routes on the mux; inside, those that a follower hands on.
func (s *server) register() {
	for _, r := range s.routes() {
		if r.edge && s.internal {
			continue
		}
		switch {
		case r.plain != nil:
			s.mux.HandleFunc(r.pattern, r.plain)
		case r.write != nil:
			s.mux.HandleFunc(r.pattern, s.handle(r.role, s.write(r.write)))
		default:
			s.mux.HandleFunc(r.pattern, s.handle(r.role, r.read))
		}
	}
}
