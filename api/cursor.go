package api

import (
	"encoding/base64"
	"encoding/json"
	"net/http"

	"rcd/fsm"
	"rcd/model"
)

// cursor is where a listing of jobs goes on, and what it lists, so that the
// next page cannot be of another list. It names a number and not a row: jobs
// that are submitted or forgotten meanwhile move nothing.
type cursor struct {
	Before    uint64 `json:"b"`
	Limit     int    `json:"l"`
	Device    string `json:"d,omitempty"`
	Submitter string `json:"s,omitempty"`
	State     string `json:"t,omitempty"`
	Hold      string `json:"h,omitempty"`
}

// longestCursor bounds what is decoded: names are at most a few hundred bytes.
const longestCursor = 4096

func (c cursor) String() string {
	raw, err := json.Marshal(c)
	if err != nil {
		panic("api: a cursor does not encode: " + err.Error())
	}
	return base64.RawURLEncoding.EncodeToString(raw)
}

// wantsJobs reads which jobs are to be listed. With a cursor the filters are
// the cursor's: they may be given again, and must then be the same.
func wantsJobs(r *http.Request) (cursor, fsm.JobFilter, error) {
	var none fsm.JobFilter
	limit, err := intParam(r, "limit", 1, maxJobs, defaultJobs)
	if err != nil {
		return cursor{}, none, err
	}
	query := r.URL.Query()
	list := cursor{Limit: int(limit), Device: query.Get("device"), Submitter: query.Get("submitter"), State: query.Get("state"), Hold: query.Get("hold")}
	if text := query.Get("cursor"); text != "" {
		from, ok := parseCursor(text)
		if !ok {
			return cursor{}, none, badRequest("the cursor is none of ours; use the next_cursor of the page before, or leave it out to begin with the newest job")
		}
		for _, given := range [][2]string{{list.Device, from.Device}, {list.Submitter, from.Submitter}, {list.State, from.State}, {list.Hold, from.Hold}} {
			if given[0] != "" && given[0] != given[1] {
				return cursor{}, none, badRequest("the cursor is of a list of other jobs; leave the filters out, or begin anew without the cursor")
			}
		}
		if query.Get("limit") != "" {
			from.Limit = list.Limit
		}
		list = from
	}
	filter := fsm.JobFilter{Limit: list.Limit, Device: list.Device, Submitter: list.Submitter, Before: list.Before}
	if list.State != "" {
		state, ok := model.ParseJobState(list.State)
		if !ok {
			return cursor{}, none, badRequest("state %q is unknown; use queued, assigned, running, succeeded, failed, killed or lost", list.State)
		}
		filter.State = &state
	}
	if list.Hold != "" {
		hold, ok := model.ParseJobID(list.Hold)
		if !ok {
			return cursor{}, none, badRequest("hold %q is the ID of nothing; give the whole ID of a hold, as rc jobs prints it", list.Hold)
		}
		filter.Hold = hold
	}
	return list, filter, nil
}

func parseCursor(text string) (cursor, bool) {
	var c cursor
	if len(text) > longestCursor {
		return c, false
	}
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || json.Unmarshal(raw, &c) != nil {
		return c, false
	}
	return c, c.Before > 0 && c.Limit >= 1 && c.Limit <= maxJobs
}

// nextCursor is where the page after these rows begins, "" when they are the
// last.
func (v *view) nextCursor(list cursor, filter fsm.JobFilter, rows []*model.Job) string {
	if len(rows) < list.Limit {
		return ""
	}
	list.Before = rows[len(rows)-1].Number
	filter.Before, filter.Limit = list.Before, 1
	if len(v.Jobs(filter)) == 0 {
		return ""
	}
	return list.String()
}
