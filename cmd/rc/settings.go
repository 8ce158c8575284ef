package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"rcd/wire"
)

type settingsCmd struct {
	Name string `arg:"" optional:"" help:"One setting."`
	// Value is nil when there is none: an empty one, of an unset variable in a
	// script, must not pass for a look.
	Value *string `arg:"" optional:"" help:"Its new value (admin)."`
	format
}

// Help is shown by rc settings --help.
func (settingsCmd) Help() string {
	return `Settings are part of the replicated state: a change holds on every controller from its place in the log on. A name that ends in _ms takes a duration, or milliseconds; a switch takes true or false; the others take counts or bytes.

Examples:

    rc settings
    rc settings aging_ms
    rc settings aging_ms 10m
    rc settings retain_disconnected_jobs true
    rc settings -o json`
}

func (v *settingsCmd) Run(a *app) error {
	var value any
	if v.Value != nil {
		var err error
		if value, err = parseSetting(v.Name, *v.Value); err != nil {
			return &usageError{text: err.Error(), verb: "settings"}
		}
	}
	c, err := a.client()
	if err != nil {
		return err
	}
	defer c.Close()
	var all *wire.Settings
	if v.Value != nil {
		all, err = c.SetSettings(a.ctx, map[string]any{v.Name: value})
	} else {
		all, err = c.Settings(a.ctx)
	}
	if err != nil {
		return err
	}
	if v.Name != "" {
		now, ok := all.Settings[v.Name]
		if !ok {
			return absentError(fmt.Sprintf("there is no setting %q; rc settings lists those there are", v.Name))
		}
		all = &wire.Settings{Settings: map[string]int64{v.Name: now}, Defaults: map[string]int64{v.Name: all.Defaults[v.Name]}}
	}
	var rows []setting
	for _, name := range slices.Sorted(maps.Keys(all.Settings)) {
		rows = append(rows, setting{name, all.Settings[name], all.Defaults[name]})
	}
	return settingListing.print(a.stdout, v.Output, rows, all)
}

// setting is one line of -o jsonl; json and yaml print the API's own shape.
type setting struct {
	Name    string `json:"name"`
	Value   int64  `json:"value"`
	Default int64  `json:"default"`
}

var settingListing = listing[setting]{
	name: func(s setting) string { return s.Name },
	columns: []column[setting]{
		{"SETTING", allTables, func(s setting) string { return s.Name }},
		{"VALUE", allTables, func(s setting) string { return settingText(s.Name, s.Value) }},
		{"DEFAULT", allTables, func(s setting) string { return settingText(s.Name, s.Default) }},
		{"CHANGED", wideOnly, func(s setting) string { return yesNo(s.Value != s.Default) }},
	},
}

const milliseconds = "_ms" // how names of durations end

// parseSetting reads a value as people write it.
func parseSetting(name, text string) (any, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	if !strings.HasSuffix(name, milliseconds) {
		switch text {
		case "true", "on":
			return true, nil // the controllers know which are switches
		case "false", "off":
			return false, nil
		}
		return nil, fmt.Errorf("%q is no value for %s; give a whole number, or true or false for a switch", text, name)
	}
	d, err := time.ParseDuration(text)
	if err != nil || d%time.Millisecond != 0 {
		return nil, fmt.Errorf("%q is no value for %s; give a duration such as 10m or 36h, or milliseconds", text, name)
	}
	return d.Milliseconds(), nil
}

func settingText(name string, value int64) string {
	if strings.HasSuffix(name, milliseconds) {
		return (time.Duration(value) * time.Millisecond).String()
	}
	return strconv.FormatInt(value, 10)
}
