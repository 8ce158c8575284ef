package api

import (
	"net/http"

	"rcd/fsm"
	"rcd/model"
	"rcd/wire"
)

// describe tells all that is known of one device.
func (s *server) describe(w http.ResponseWriter, r *http.Request, _ Identity) error {
	id := r.PathValue("id")
	v, err := s.viewWhen(r, true, deviceConcerns(id))
	if err != nil {
		return err
	}
	device, err := v.device(id)
	if err != nil {
		return err
	}
	about := v.deviceView(device)
	out := wire.Describe{
		Device:              about.Device,
		Holder:              about.Holder,
		JobID:               about.JobID,
		ElapsedSeconds:      about.ElapsedSeconds,
		HeartbeatAgeSeconds: about.HeartbeatAgeSeconds,
		QuarantineReason:    about.QuarantineReason,
		QuarantineCategory:  about.QuarantineCategory,
		NotDeclared:         about.NotDeclared,
		Labels:              about.Device.Labels,
		LabelAgeSeconds:     map[string]int64{},
		RecentJobs:          wireJobs(v.Jobs(fsm.JobFilter{Limit: recentJobs, Device: id})),
	}
	for _, l := range out.Labels {
		out.LabelAgeSeconds[l.Key+"/"+l.Source] = v.seconds(l.UpdatedAt)
	}
	v.describeSheet(device, &out)
	v.describeReturns(device, &out)
	return s.send(w, v.reply(w, out))
}

// device returns the device of an ID.
func (v *view) device(id string) (*model.Device, error) {
	if d := v.Device(id); d != nil {
		return d, nil
	}
	return nil, refuse(http.StatusNotFound, wire.CodeNotFound, "there is no device %q; rc devices lists those there are", id)
}

func (v *view) describeSheet(device *model.Device, out *wire.Describe) {
	sheet := v.Sheet(device)
	if sheet == nil {
		return
	}
	age := v.secondsSinceMS(sheet.UpdatedAtMS)
	out.Sheet, out.SheetUpdatedAt, out.SheetAgeSeconds = sheet.Body, wireTime(sheet.UpdatedAtMS), &age
	out.SheetIsHostWide = sheet.Name == ""
}

// describeReturns says whether a quarantine of the device could end by itself.
func (v *view) describeReturns(device *model.Device, out *wire.Describe) {
	if history, err := v.RecoveryHistory(device.ID); err == nil {
		out.AutomaticReturnsLeft, out.AutomaticReturnsWindow = history.Remaining, history.WindowMS/1000
		for _, r := range history.Recoveries {
			out.AutomaticReturns = append(out.AutomaticReturns, wire.AutomaticReturn{At: wireTime(r.AtMS), Reason: r.Reason.String()})
		}
	}
	if agent := v.Agent(device.Host); agent != nil {
		out.ManualClear, out.ProofDetail = agent.ManualClear, agent.ProofDetail
	}
}
