package fsm

import (
	"bytes"

	"rcd/fsm/command"
	"rcd/model"
)

// requestName is the key of a request row. The scope's length comes first, so
// no two pairs share a key.
func requestName(scope, id string) string {
	return string(keyBytes(uint64(len(scope)))) + scope + id
}

// once runs a command at most once per request ID. Only accepted commands are
// remembered: a refused one has had no effect, so it may be tried again.
func (t *txn) once(c command.Command, run func() answer) answer {
	r := c.Request
	if r.ID == "" {
		return run()
	}
	if len(r.ID) > command.MaxRequestID {
		return refuse(command.BadRequest, "The request ID is longer than %d bytes; use a shorter one, such as a UUID.", command.MaxRequestID)
	}
	key := requestName(r.Scope, r.ID)
	if earlier := t.requests.get(key); earlier != nil {
		return t.repeat(c, key, earlier)
	}
	if !t.roomForRequest() {
		return refuse(command.Overloaded, "The table of request IDs is full of recent ones; wait a minute and send this again with the same ID.")
	}
	a := run()
	if a.Code != command.OK {
		return a
	}
	row := model.Request{
		Scope: r.Scope, ID: r.ID, Digest: r.Digest, Kind: uint16(c.Kind),
		Jobs: a.jobs, Device: a.device, UptimeMS: t.uptimeMS(),
	}
	t.requests.put(&t.digest, key, row)
	t.requestAge.add(requestKey{row.UptimeMS, key})
	a.request = key
	return a
}

// repeat answers a request ID that is known.
func (t *txn) repeat(c command.Command, key string, earlier *model.Request) answer {
	otherBody := c.Request.Strict && !bytes.Equal(c.Request.Digest, earlier.Digest)
	if otherBody || uint16(c.Kind) != earlier.Kind {
		return refuse(command.KeyReused, "This request ID was used before for another request; use a new one.")
	}
	return answer{
		Result: command.Result{Repeat: true},
		jobs:   earlier.Jobs, device: earlier.Device, request: key,
	}
}

// roomForRequest makes room for one more request row when the table is at its
// bound, by forgetting the oldest if that is old enough.
func (t *txn) roomForRequest() bool {
	for int64(t.requests.len()) >= t.settings.MaxRequests {
		if !t.dropOldestRequest() {
			return false
		}
	}
	return true
}

// dropOldestRequest forgets the oldest request; false when it is too young, or
// when there is none.
func (t *txn) dropOldestRequest() bool {
	oldest, ok := t.requestAge.tree.Min()
	if !ok || t.uptimeMS()-oldest.uptime < t.settings.RequestMinAgeMS {
		return false
	}
	t.requestAge.drop(oldest)
	t.requests.remove(&t.digest, oldest.key)
	return true
}
