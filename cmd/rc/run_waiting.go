package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"rcd/wire"
)

// queueTalk tells on stderr how a job fares in the queue: its place, why it
// waits and until when at most, each when it has changed.
type queueTalk struct {
	app      *app
	target   string
	position int
	why      string
	latest   time.Time // as told, zero: not known
	told     bool
}

// look is called with what is seen of the job twice a second.
func (q *queueTalk) look(view *wire.JobView) {
	if view.QueuePosition > 0 && view.QueuePosition != q.position {
		q.app.say("queued at position %d for %s", view.QueuePosition, q.target)
	}
	q.position = view.QueuePosition
	if view.Waiting == nil || len(view.Waiting.Reasons) == 0 {
		return // a controller of an older version
	}
	why, expected := whyItWaits(view.Waiting.Reasons), view.Waiting.ExpectedStart
	var latest time.Time
	if expected.Latest != nil {
		latest = *expected.Latest
	}
	if q.told && why == q.why && !moved(q.latest, latest, expected.Earliest) {
		return
	}
	q.why, q.latest, q.told = why, latest, true
	if ends(view.Waiting.Reasons) {
		q.app.say("%s", why) // and when that is; it starts only if things change
		return
	}
	q.app.say("%s; %s", why, untilWhen(expected))
}

// moved reports whether a latest start is another one: by a minute and by a
// tenth of what is left. One that follows the clock changes a little each time.
func moved(was, is time.Time, now *time.Time) bool {
	if was.IsZero() || is.IsZero() || now == nil {
		return was.IsZero() != is.IsZero()
	}
	by := is.Sub(was).Abs()
	return by >= time.Minute && by >= is.Sub(*now)/10
}

// whyItWaits is the first reason, and how many jobs are ahead.
func whyItWaits(reasons []wire.WaitReason) string {
	text := strings.TrimSuffix(clean(reasons[0].Message), ".")
	for _, r := range reasons[1:] {
		if r.Code == wire.WaitBehind && r.JobsAhead == 1 {
			text += ", and 1 job is ahead"
		} else if r.Code == wire.WaitBehind {
			text += fmt.Sprintf(", and %d jobs are ahead", r.JobsAhead)
		}
	}
	return text
}

// ends reports whether the job is going to end in the queue as things stand.
func ends(reasons []wire.WaitReason) bool {
	return slices.ContainsFunc(reasons, func(r wire.WaitReason) bool { return r.Since != nil })
}

// untilWhen says when a job starts at the latest, by the controllers' clock.
func untilWhen(e wire.ExpectedStart) string {
	if e.Latest == nil || e.Earliest == nil {
		return "until when cannot be said"
	}
	return "starts within " + duration(e.Latest.Sub(*e.Earliest)) + " at the latest"
}
