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
// remembered: a refused one has had no effect, so it may be tried again. Of two
// IDs either is enough to know the command by, and both are remembered.
func (t *txn) once(c command.Command, run func() answer) answer {
	var ids []command.Request
	for _, r := range []command.Request{c.Request, c.Also} {
		if len(r.ID) > command.MaxRequestID {
			return refuse(command.BadRequest, "The request ID is longer than %d bytes; use a shorter one, such as a UUID.", command.MaxRequestID)
		}
		if r.ID != "" {
			ids = append(ids, r)
		}
	}
	var earlier *model.Request
	var known string
	for _, r := range ids {
		key := requestName(r.Scope, r.ID)
		row := t.requests.get(key)
		if row == nil {
			continue
		}
		if (r.Strict && !bytes.Equal(r.Digest, row.Digest)) || uint16(c.Kind) != row.Kind {
			return refuse(command.KeyReused, "This request ID was used before for another request; use a new one.")
		}
		if earlier == nil {
			earlier, known = row, key
		}
	}
	room := t.roomForRequests(ids)
	if earlier != nil {
		a := answer{jobs: earlier.Jobs, device: earlier.Device, known: known, outcome: command.Code(earlier.Outcome)}
		a.Repeat, a.Kill = true, command.KillOutcome(earlier.Kill)
		if room {
			a.requests = t.remember(c, ids, a)
		}
		return a
	}
	if !room {
		return refuse(command.Overloaded, "The table of request IDs is full of recent ones; wait a minute and send this again with the same ID.")
	}
	a := run()
	if a.Code == command.OK {
		a.requests = t.remember(c, ids, a)
	}
	return a
}

// remember keeps the IDs that are not known yet, with what an accepted command
// did, and returns the keys of their rows.
func (t *txn) remember(c command.Command, ids []command.Request, a answer) (keys []string) {
	oldest, _ := t.inTheWay(ids)
	for _, k := range oldest {
		t.dropRequest(k)
	}
	for _, r := range ids {
		key := requestName(r.Scope, r.ID)
		if t.requests.get(key) != nil {
			continue
		}
		row := model.Request{
			Scope: r.Scope, ID: r.ID, Digest: r.Digest, Kind: uint16(c.Kind),
			Jobs: a.jobs, Device: a.device, Kill: uint8(a.Kill), UptimeMS: t.uptimeMS(),
		}
		t.requests.put(&t.digest, key, row)
		t.requestAge.add(requestKey{row.UptimeMS, key})
		keys = append(keys, key)
	}
	return keys
}

// roomForRequests reports whether the rows of the IDs that are not known fit
// into the table, or would after the oldest are forgotten that are old enough.
// Nothing is forgotten yet: the command may be refused.
func (t *txn) roomForRequests(ids []command.Request) bool {
	_, enough := t.inTheWay(ids)
	return enough
}

// inTheWay returns the oldest requests, oldest first, that may be forgotten for
// the rows of the IDs that are not known, and whether that makes room for them.
// The rows of the IDs themselves stay: what was asked for just now is not
// forgotten for it. A table far above a bound that was lowered is left to
// job.prune.
func (t *txn) inTheWay(ids []command.Request) (oldest []requestKey, enough bool) {
	var own []string
	fresh := 0
	for _, r := range ids {
		key := requestName(r.Scope, r.ID)
		if t.requests.get(key) == nil {
			fresh++
		} else {
			own = append(own, key)
		}
	}
	over := int64(t.requests.len()+fresh) - t.settings.MaxRequests
	switch {
	case fresh == 0 || over <= 0:
		return nil, true
	case over > maxPruneRows:
		return nil, false
	}
	t.requestAge.tree.Scan(func(k requestKey) bool {
		if t.uptimeMS()-k.uptime < t.settings.RequestMinAgeMS {
			return false
		}
		if !contains(own, k.key) {
			oldest = append(oldest, k)
		}
		return int64(len(oldest)) < over
	})
	return oldest, int64(len(oldest)) == over
}

// dropOldestRequest forgets the oldest request; false when it is too young, or
// when there is none.
func (t *txn) dropOldestRequest() bool {
	oldest, ok := t.requestAge.tree.Min()
	if !ok || t.uptimeMS()-oldest.uptime < t.settings.RequestMinAgeMS {
		return false
	}
	t.dropRequest(oldest)
	return true
}

func (t *txn) dropRequest(k requestKey) {
	t.requestAge.drop(k)
	t.requests.remove(&t.digest, k.key)
}
