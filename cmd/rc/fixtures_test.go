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
}
