package api

import (
	"time"

	"rcd/internal/ident"
	"rcd/model"
	"rcd/wire"
)

// wireTime is a time of the API: UTC, whole seconds.
func wireTime(ms int64) time.Time { return time.UnixMilli(ms).UTC().Truncate(time.Second) }

func optionalTime(ms int64) *time.Time {
	if ms == 0 {
		return nil
	}
	t := wireTime(ms)
	return &t
}

func optionalCode(code *int32) *int {
	if code == nil {
		return nil
	}
	n := int(*code)
	return &n
}

func workerID(host string) string {
	if host == "" {
		return ""
	}
	return ident.WorkerID(host)
}

// wireJob is a row as the API shows it.
func wireJob(j *model.Job) wire.Job {
	out := wire.Job{
		ID:                 j.ID(),
		Selector:           j.Selector,
		Kind:               j.Kind.String(),
		Command:            j.Command,
		Cwd:                j.Cwd,
		Env:                j.Env,
		Submitter:          j.Submitter,
		IdempotencyKey:     j.ClientKey,
		Priority:           int(j.Priority),
		MaxRuntimeSeconds:  j.MaxRuntimeS,
		IdleTimeoutSeconds: j.IdleTimeoutS,
		QueuedAt:           optionalTime(j.QueuedAtMS),
		State:              j.State.String(),
		DeviceID:           j.Device(),
		WorkerID:           workerID(j.Host),
		ExitCode:           optionalCode(j.ExitCode),
		KillReason:         j.EndReason,
		Reason:             j.Note,
		Stdio:              j.Stdio.String(),
		SubmittedAt:        wireTime(j.SubmittedAtMS),
		StartedAt:          optionalTime(j.StartedAtMS),
		FinishedAt:         optionalTime(j.FinishedAtMS),
		LateExitCode:       optionalCode(j.LateExitCode),
		SessionSeconds:     j.SessionS,
		SessionSilent:      j.SessionSilent,
	}
	if j.Hold != 0 {
		out.Hold = model.JobID(j.Hold)
	}
	if out.Command == nil {
		out.Command = []string{}
	}
	if out.DeviceID == "" && len(j.Devices) == 0 {
		out.DeviceID = j.Pinned
	}
	if len(j.Devices) > 1 {
		out.Devices = j.Devices
	}
	if j.Lease != 0 {
		out.Lease = model.LeaseID(j.Lease)
	}
	if !j.State.Terminal() {
		return out
	}
	if out.StartedAt == nil && j.ExitCode != nil {
		// It was handed to its host, which is what the ancestor's field says,
		// and could not be started there.
		out.StartedAt = out.FinishedAt
	}
	out.Output = j.Output.String()
	if j.OutputKnown {
		length := j.OutputLength
		out.OutputBytes = &length
	}
	if j.State != model.JobSucceeded {
		out.Origin = j.Origin.String()
	}
	return out
}

func wireJobs(rows []*model.Job) []wire.Job {
	out := make([]wire.Job, 0, len(rows))
	for _, row := range rows {
		out = append(out, wireJob(row))
	}
	return out
}
