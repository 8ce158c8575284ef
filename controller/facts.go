package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/session"
	"rcd/wire"
)

// factTries bounds how often facts are looked at again because a device was
// retired while they were on their way.
const factTries = 3

// Facts implements session.Backend. Only what differs from the rows is worth an
// entry; a device without a row has been retired, and its host brings it back,
// facts and all, when it registers.
func (a agents) Facts(ctx context.Context, host, instance string, f wire.Facts) (index uint64, err error) {
	for range factTries {
		var refusal *session.Refusal
		index, err = a.tellFacts(ctx, host, instance, f)
		if !errors.As(err, &refusal) || refusal.Code != string(command.DeviceNotFound) {
			break
		}
		// Refused as a whole: what is told of the other devices is not in the table.
	}
	return index, err
}

func (a agents) tellFacts(ctx context.Context, host, instance string, f wire.Facts) (uint64, error) {
	view, all := a.c.machine.View(), a.c.doubts.About(host)
	if known := view.Agent(host); known == nil || known.Instance != instance {
		return 0, fmt.Errorf("facts of %s: it has to register first", host)
	}
	index := view.Index()
	if sets := session.DifferingLabels(view, host, f.Labels, all); len(sets) > 0 {
		at, err := a.recordFacts(ctx, host, &command.LabelsReplace{Host: host, Instance: instance, Source: model.Detected, Sets: sets})
		if err != nil {
			return 0, fmt.Errorf("labels of %s: %w", host, err)
		}
		index = at
	}
	if sheets := session.DifferingSheets(view, host, f.Sheets, all); len(sheets) > 0 {
		at, err := a.recordFacts(ctx, host, &command.SheetPut{Host: host, Instance: instance, Sheets: sheets})
		if err != nil {
			return 0, fmt.Errorf("usage sheets of %s: %w", host, err)
		}
		index = at
	}
	return index, nil
}

// recordFacts is record for what the rows are compared with later.
func (a agents) recordFacts(ctx context.Context, host string, body any) (uint64, error) {
	settle := a.c.doubts.Propose(host)
	index, err := a.record(ctx, body)
	var refusal *session.Refusal
	if err == nil || errors.As(err, &refusal) {
		settle()
	}
	return index, err
}

// factsDigest returns the digest of what the table has of a host, nil when that
// may change by what is on its way.
func (a agents) factsDigest(view *fsm.View, hello wire.Hello) []byte {
	if a.c.doubts.About(hello.Host) {
		return nil
	}
	return session.FactsOf(view, hello).Digest()
}

// Fault implements session.Backend. A fault that the row tells of already is not
// worth an entry.
func (a agents) Fault(ctx context.Context, host, instance string, f wire.DeviceFault) (index, lease uint64, err error) {
	id := model.DeviceID(host, f.Device)
	view := a.c.machine.View()
	if hasFault(view, id, f.Detail) {
		return view.Index(), view.LastLease(), nil
	}
	index, err = a.record(ctx, &command.DeviceFault{Device: id, Instance: instance, Detail: f.Detail})
	if err != nil {
		return 0, 0, fmt.Errorf("fault of %s: %w", id, err)
	}
	// While the fault stands the device gets no lease, so all that it has had are
	// at or below the counter. Once it does not, nobody can say which came after.
	if view = a.c.machine.View(); hasFault(view, id, f.Detail) {
		lease = view.LastLease()
	}
	return index, lease, nil
}

// hasFault reports whether the row of a device tells of a fault.
func hasFault(view *fsm.View, id, detail string) bool {
	row := view.Device(id)
	return row != nil && row.State == model.DeviceUnhealthy && row.Reason == model.ReasonFault && strings.Contains(row.Detail, detail)
}

// record proposes a command and makes a rejection a *session.Refusal.
func (a agents) record(ctx context.Context, body any) (uint64, error) {
	result, index, err := a.c.propose(ctx, body)
	if err == nil && result.Code != command.OK {
		err = &session.Refusal{Code: string(result.Code), Message: result.Message}
	}
	return index, err
}
