package main

// fixtures are the answers of a small fleet: box with a busy, a free and a
// faulty device, and one of a host that is silent.
var fixtures = map[string]string{
	"/v1/whoami": `{"role":"client"}`,

	"/v1/devices": `[
{"device":{"id":"box:gpu0","host":"box","name":"gpu0","state":"busy"},"holder":"ann@box","job_id":"j-41","kind":"job","command":["python","train.py","--name","a b"],"elapsed_seconds":3725,"heartbeat_age_seconds":2},
{"device":{"id":"box:gpu1","host":"box","name":"gpu1","state":"ready","labels":[{"key":"rack","value":"r3","source":"declared"},{"key":"vram","value":"40G","source":"declared"},{"key":"vram","value":"80G","source":"detected"}]},"elapsed_seconds":0,"heartbeat_age_seconds":2},
{"device":{"id":"box:gpu2","host":"box","name":"gpu2","state":"unhealthy"},"elapsed_seconds":0,"heartbeat_age_seconds":2,"quarantine_reason":"fan stopped","quarantine_category":"fault"},
{"device":{"id":"far:gpu0","host":"far","name":"gpu0","state":"unknown"},"holder":"bob@far","job_id":"j-42","kind":"hold","reason":"profiling","elapsed_seconds":59,"heartbeat_age_seconds":400,"not_declared":true}]`,

	"/v1/explain": `{"selector":"vram>=40G","matching":["box:gpu0","box:gpu1"],"free":["box:gpu1"],"queue_depth":2}`,

	// With a runtime; see explain.
	"/v1/explain?long": `{"selector":"vram>=40G","matching":["box:gpu0","box:gpu1","box:gpu2","far:gpu0"],"free":["box:gpu1"],"queue_depth":2,
"max_runtime_seconds":43200,"tolerating":["box:gpu0","box:gpu2","far:gpu0"],"more_devices":3,"devices":[
{"device_id":"box:gpu0","state":"busy","job_id":"j-41","holder":"ann@box","latest_end":"2026-01-02T04:04:05Z","tolerates":true},
{"device_id":"box:gpu2","state":"unhealthy","quarantine_reason":"fault","detail":"fan stopped","tolerates":true},
{"device_id":"far:gpu0","state":"unknown","job_id":"j-42","holder":"bob@far","reason":"profiling","tolerates":true},
{"device_id":"box:gpu1","state":"ready","ceiling_seconds":3600,"tolerates":false}],
"reasons":[{"code":"device_busy","message":"box:gpu0 is held by ann@box with job j-41."},{"code":"behind","message":"2 jobs ahead of it could take a device that it could use."}],
"expected_start":{"earliest":"2026-01-02T03:04:05Z","latest":"2026-01-02T05:04:05Z","note":"Later jobs can make it later."}}`,

	"/v1/members": `{"feature_level":3,"generation":1,"members":[
{"id":"c1","incarnation":"i1","supports":3,"build":"v1.4.0","since":"2026-01-02T03:04:05Z"},
{"id":"c2","incarnation":"i2","supports":4,"build":"","since":"2026-01-02T03:04:05Z"}]}`,

	"/v1/settings": `{"settings":{"aging_ms":1800000,"max_queued":100000,"retain_disconnected_jobs":1},"defaults":{"aging_ms":1800000,"max_queued":100000,"retain_disconnected_jobs":0}}`,

	"/v1/state": `{"devices":[],
"jobs":[{"id":"j-41","kind":"job","command":["python","train.py"],"submitter":"ann@box","state":"running","device_id":"box:gpu0"}],
"queued":[
{"id":"j-43","kind":"job","command":["sh","-c","echo one\necho \u001b[31mtwo"],"submitter":"bob@far","state":"queued","device_id":"box:gpu0"},
{"id":"j-44","kind":"job","command":["true"],"submitter":"bob@far","state":"queued","device_id":"","selector":"vram>=40G"},
{"id":"j-45","kind":"job","command":["true"],"submitter":"cyd@far","state":"queued","device_id":"box:gpu0"},
{"id":"j-46","kind":"job","command":["true"],"submitter":"cyd@far","state":"queued","device_id":"","selector":"rack=r3"}]}`,

	"/v1/raft/status": `{"node":"c1","cluster_id":"abcdefgh","generation":1,"state":"follower","term":7,"leader":"c2","leader_address":"10.0.0.2:7000",
"last_log_index":4120,"commit_index":4119,"applied_index":4119,"fsm_index":4119,"epoch":7,"last_snapshot_index":4000,"digest":"1f2e3d4c",
"now":"2026-01-02T03:04:05Z","uptime_ms":7322000,"holdoff_ms":0,"agents":2,"agents_attached":1,"counts":{"jobs running":1,"devices ready":1},
"alarms":[{"code":"write_off_withheld","since":"2026-01-02T03:00:00Z","message":"4 of 8 hosts are silent; look at the network"}]}`,

	"/v1/raft/peers": `{"peers":[
{"id":"c1","leader":false,"voter":true,"address":"10.0.0.1:7000","http":"10.0.0.1:8080","self":true,"reachable":true,"last_log_index":4120,"applied_index":4119,"term":7},
{"id":"c2","leader":true,"voter":true,"address":"10.0.0.2:7000","http":"10.0.0.2:8080","self":false,"reachable":true,"last_log_index":4121,"applied_index":4119,"term":7},
{"id":"c3","leader":false,"voter":false,"address":"10.0.0.3:7000","http":"","self":false,"reachable":false,"last_log_index":0,"applied_index":0,"term":0}]}`,

	"/v1/raft/log": `{"node":"c1","commit_index":4119,"first_index":4000,"last_index":4120,"entries":[
{"index":4118,"term":7,"time":"2026-01-02T03:04:05.000Z","kind":"job.enqueue","summary":"by ann@box on box:gpu0: true","position":0,"committed":true},
{"index":4118,"term":7,"time":"2026-01-02T03:04:05.000Z","kind":"job.enqueue","summary":"by bob@far for rack=r3: true","position":1,"committed":true},
{"index":4119,"term":7,"time":"","kind":"noop","summary":"","position":0,"committed":true},
{"index":4120,"term":7,"time":"2026-01-02T03:04:06.000Z","kind":"job.kill","summary":"j-41 by ann@box","position":0,"committed":false}]}`,

	"/v1/devices/box:gpu0/describe": `{"device":{"id":"box:gpu0","host":"box","name":"gpu0","worker_id":"w","state":"busy","last_heartbeat_at":"2026-01-02T03:04:05Z"},
"holder":"ann@box","job_id":"j-41","elapsed_seconds":3725,"heartbeat_age_seconds":2,
"labels":[{"key":"driver","value":"570.1","source":"detected","updated_at":"2026-01-02T03:00:00Z"},{"key":"rack","value":"r3","source":"declared","updated_at":"2026-01-01T03:00:00Z"},{"key":"vram","value":"80G","source":"detected","updated_at":"2026-01-02T04:00:00Z"}],
"label_age_seconds":{"driver/detected":245,"rack/declared":86645,"vram/detected":-3355},
"sheet":"# gpu0\n\ncuda is in /opt/cuda;\tdo not use /tmp, it is small.\n","sheet_updated_at":"2025-12-30T03:04:05Z","sheet_age_seconds":259200,"sheet_is_host_wide":false,
"recent_jobs":[
{"id":"j-41","kind":"job","command":["python","train.py"],"submitter":"ann@box","state":"killed","device_id":"box:gpu0","kill_reason":"max_runtime exceeded (1h0m0s)","exit_code":143,"started_at":"2026-01-02T02:00:00Z","finished_at":"2026-01-02T03:00:01Z"},
{"id":"j-39","kind":"hold","command":["hold"],"submitter":"bob@far","state":"lost","device_id":"box:gpu0","kill_reason":"agent silent","reason":"profiling","origin":"host","started_at":"2026-01-02T01:00:00Z","finished_at":"2026-01-02T01:30:00Z"}],
"automatic_returns_left":3,"automatic_returns_window_seconds":3600}`,

	"/v1/devices/box:gpu2/describe": `{"device":{"id":"box:gpu2","host":"box","name":"gpu2","worker_id":"w","state":"unhealthy","last_heartbeat_at":"2026-01-02T03:04:05Z"},
"elapsed_seconds":0,"heartbeat_age_seconds":2,"quarantine_reason":"fan stopped","quarantine_category":"fault","labels":[],"label_age_seconds":{},
"sheet":"Ask \u001b[31mbob first.","sheet_updated_at":"2025-12-30T03:04:05Z","sheet_age_seconds":7200,"sheet_is_host_wide":true,
"automatic_returns_left":3,"automatic_returns_window_seconds":3600}`,

	"/v1/devices/far:gpu0/describe": `{"device":{"id":"far:gpu0","host":"far","name":"gpu0","worker_id":"w","state":"unhealthy","last_heartbeat_at":"2026-01-02T03:04:05Z"},
"elapsed_seconds":0,"heartbeat_age_seconds":400,"quarantine_reason":"worker_lost","quarantine_category":"worker_lost","not_declared":true,"labels":[],"label_age_seconds":{},
"sheet":"","sheet_updated_at":"0001-01-01T00:00:00Z","sheet_is_host_wide":false,"proof_detail":"pid 77 is left",
"automatic_returns":[{"at":"2026-01-02T02:50:00Z","reason":"worker_lost"},{"at":"2026-01-02T02:40:00Z","reason":"worker_lost"},{"at":"2026-01-02T02:30:00Z","reason":"worker_lost"}],
"automatic_returns_left":0,"automatic_returns_window_seconds":3600}`,
}

// Messages of the events route.
const (
	eventPlaced = `{"kind":"jobs","at":"2026-01-02T03:04:05.5Z","payload":{"job_id":"j-41","state":"assigned"},"event":"job.placed"}`
	eventDevice = `{"kind":"devices","at":"2026-01-02T03:04:06Z","payload":[{"device":{"id":"box:gpu2","host":"box","name":"gpu2","state":"unhealthy"},"elapsed_seconds":0,"heartbeat_age_seconds":2,"quarantine_reason":"fan\tstopped"}]}`
	eventEnded  = `{"kind":"jobs","at":"2026-01-02T03:04:07Z","payload":{"job_id":"j-41","state":"failed","reason":"start: no such file"},"event":"job.ended"}`
	eventReset  = `{"kind":"reset","at":"2026-01-02T03:04:07Z","payload":{"from":"1-3-0","reason":"too long ago"},"event":"reset"}`
)
