package fsm

import (
	"slices"

	"rcd/model"
)

// setting is one replicated setting: its name, its bounds and where it lives.
type setting struct {
	name     string
	min, max int64
	field    func(*model.Settings) *int64 // nil for a switch
	flag     func(*model.Settings) *bool  // nil for a number
}

// Bounds shared by several settings.
const (
	secondMS = int64(1000)
	minuteMS = 60 * secondMS
	hourMS   = 60 * minuteMS
	dayMS    = 24 * hourMS
)

// settingRules lists the settings by name. The bounds keep a typing error from
// undoing a law: a holdoff is never shorter than agents need to come back, and
// no request ID younger than 15 minutes is ever evicted.
var settingRules = []setting{
	{"aging_ms", 0, 30 * dayMS, func(s *model.Settings) *int64 { return &s.AgingMS }, nil},
	{"finished_age_ms", minuteMS, 3650 * dayMS, func(s *model.Settings) *int64 { return &s.FinishedAgeMS }, nil},
	{"flap_limit", 0, 1000, func(s *model.Settings) *int64 { return &s.FlapLimit }, nil},
	{"flap_window_ms", minuteMS, 30 * dayMS, func(s *model.Settings) *int64 { return &s.FlapWindowMS }, nil},
	{"holdoff_ms", model.MinHoldoffMS, dayMS, func(s *model.Settings) *int64 { return &s.HoldoffMS }, nil},
	{"lease_unnamed_ms", 10 * secondMS, 30 * dayMS, func(s *model.Settings) *int64 { return &s.LeaseUnnamedMS }, nil},
	{"lease_unstarted_ms", 10 * secondMS, 30 * dayMS, func(s *model.Settings) *int64 { return &s.LeaseUnstartedMS }, nil},
	{"mass_floor", 0, 100_000, func(s *model.Settings) *int64 { return &s.MassFloor }, nil},
	{"mass_percent", 0, 100, func(s *model.Settings) *int64 { return &s.MassPercent }, nil},
	{"mass_permit", 0, 1, nil, func(s *model.Settings) *bool { return &s.MassPermit }},
	{"max_array", 1, 1000, func(s *model.Settings) *int64 { return &s.MaxArray }, nil},
	{"max_devices_in_host", 1, 4096, func(s *model.Settings) *int64 { return &s.MaxDevicesInHost }, nil},
	{"max_env_bytes", 0, 512 << 10, func(s *model.Settings) *int64 { return &s.MaxEnvBytes }, nil},
	{"max_finished", 0, 10_000_000, func(s *model.Settings) *int64 { return &s.MaxFinished }, nil},
	{"max_finished_bytes", 1 << 20, 64 << 30, func(s *model.Settings) *int64 { return &s.MaxFinishedBytes }, nil},
	{"max_hosts", 1, 100_000, func(s *model.Settings) *int64 { return &s.MaxHosts }, nil},
	{"max_labels", 1, 4096, func(s *model.Settings) *int64 { return &s.MaxLabels }, nil},
	{"max_queued", 1, 1_000_000, func(s *model.Settings) *int64 { return &s.MaxQueued }, nil},
	{"max_queued_bytes", 1 << 20, 16 << 30, func(s *model.Settings) *int64 { return &s.MaxQueuedBytes }, nil},
	{"max_requests", 1, 10_000_000, func(s *model.Settings) *int64 { return &s.MaxRequests }, nil},
	{"max_selectors", 1, 10_000, func(s *model.Settings) *int64 { return &s.MaxSelectors }, nil},
	{"max_sheet_bytes", 0, 256 << 10, func(s *model.Settings) *int64 { return &s.MaxSheetBytes }, nil},
	{"max_sheets_bytes", 0, 16 << 20, func(s *model.Settings) *int64 { return &s.MaxSheetsBytes }, nil},
	{"no_serve_grace_ms", minuteMS, 30 * dayMS, func(s *model.Settings) *int64 { return &s.NoServeGraceMS }, nil},
	{"request_min_age_ms", 15 * minuteMS, 30 * dayMS, func(s *model.Settings) *int64 { return &s.RequestMinAgeMS }, nil},
	{"retain_disconnected_jobs", 0, 1, nil, func(s *model.Settings) *bool { return &s.RetainDisconnected }},
	{"unknown_after_ms", secondMS, hourMS, func(s *model.Settings) *int64 { return &s.UnknownAfterMS }, nil},
	{"unknown_silence_ms", 5 * secondMS, hourMS, func(s *model.Settings) *int64 { return &s.UnknownSilenceMS }, nil},
	{"write_off_after_ms", 10 * secondMS, 30 * dayMS, func(s *model.Settings) *int64 { return &s.WriteOffAfterMS }, nil},
}

func settingNamed(name string) *setting {
	i := slices.IndexFunc(settingRules, func(r setting) bool { return r.name == name })
	if i < 0 {
		return nil
	}
	return &settingRules[i]
}

func (r *setting) set(s *model.Settings, value int64) {
	if r.field == nil {
		*r.flag(s) = value != 0
		return
	}
	*r.field(s) = value
}

func (r *setting) get(s *model.Settings) int64 {
	if r.field == nil {
		if *r.flag(s) {
			return 1
		}
		return 0
	}
	return *r.field(s)
}

// SettingNames returns the names that config.set takes, sorted. The caller
// owns the slice.
func SettingNames() []string {
	names := make([]string, len(settingRules))
	for i, r := range settingRules {
		names[i] = r.name
	}
	return names
}

// SettingValue returns the value of a setting by its name, and whether there
// is such a setting.
func SettingValue(s model.Settings, name string) (int64, bool) {
	r := settingNamed(name)
	if r == nil {
		return 0, false
	}
	return r.get(&s), true
}

// SettingIsSwitch reports whether a setting is on or off, 1 or 0.
func SettingIsSwitch(name string) bool {
	r := settingNamed(name)
	return r != nil && r.field == nil
}
