package controller

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"rcd/fsm"
	"rcd/model"
	"rcd/wire"
)

// alarms holds what this node must keep telling until it is over, one for each
// code. What follows from the lease table is not in it, see Controller.alarmed.
type alarms struct {
	mu  sync.Mutex
	all map[string]wire.Alarm
}

// raise adds an alarm; one of the same code keeps its beginning.
func (a *alarms) raise(code string, since time.Time, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if old, ok := a.all[code]; ok {
		since = old.Since
	}
	if a.all == nil {
		a.all = map[string]wire.Alarm{}
	}
	a.all[code] = wire.Alarm{Code: code, Since: since.UTC(), Message: message}
}

// end takes an alarm back.
func (a *alarms) end(code string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all, code)
}

func (a *alarms) list() []wire.Alarm {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []wire.Alarm
	for _, alarm := range a.all {
		list = append(list, alarm)
	}
	return list
}

// alarmed lists what waits for an operator, as this node knows it, oldest
// first.
func (c *Controller) alarmed() []wire.Alarm {
	list := c.alarms.list()
	if alarm, ok := withheldAlarm(c.machine.View()); ok {
		list = append(list, alarm)
	}
	slices.SortFunc(list, func(a, b wire.Alarm) int {
		if order := a.Since.Compare(b.Since); order != 0 {
			return order
		}
		return strings.Compare(a.Code, b.Code)
	})
	return list
}

// maxNamedHosts bounds the hosts that an alarm names.
const maxNamedHosts = 5

// withheldAlarm tells of a mass write-off that waits.
func withheldAlarm(view *fsm.View) (wire.Alarm, bool) {
	w, waits := view.Withheld()
	if !waits {
		return wire.Alarm{}, false
	}
	agents := view.Agents()
	silent := slices.DeleteFunc(slices.Clone(agents), func(a *model.Agent) bool { return !a.Silent || a.WrittenOff })
	var names []string
	for _, a := range silent[:min(len(silent), maxNamedHosts)] {
		names = append(names, a.Host)
	}
	if more := len(silent) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	message := fmt.Sprintf("%d of %d hosts are silent (%s), too many at once for a fault of theirs, so none is written off: their jobs and leases stay as they are. "+
		"Look at the network between them and the controllers first. If they are really gone, set mass_permit to 1 and the write-off passes once.",
		len(silent), len(agents), strings.Join(names, ", "))
	if view.Settings().MassPermit {
		message = fmt.Sprintf("%d of %d hosts are silent (%s); the write-off is permitted and passes as soon as the leader has seen them silent for the usual bound.",
			len(silent), len(agents), strings.Join(names, ", "))
	}
	since := time.UnixMilli(view.NowMS() - (view.UptimeMS() - w.SinceMS)).UTC()
	return wire.Alarm{Code: wire.AlarmWriteOffWithheld, Since: since, Message: message}, true
}

// crier tells a leader's log what waits, once each alarmEvery.
type crier struct{ last time.Time }

func (r *crier) tell(c *Controller, now time.Time) {
	if !r.last.IsZero() && now.Sub(r.last) < alarmEvery {
		return
	}
	list := c.alarmed()
	if len(list) > 0 {
		r.last = now
	}
	for _, alarm := range list {
		c.log.Error("this waits for an operator", "alarm", alarm.Code, "since", alarm.Since, "what", alarm.Message)
	}
}
