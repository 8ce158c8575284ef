package api

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"rcd/fsm"
	"rcd/fsm/command"
	"rcd/model"
	"rcd/wire"
)

func (s *server) settings(w http.ResponseWriter, r *http.Request, _ Identity) error {
	v, err := s.viewFor(r, false)
	if err != nil {
		return err
	}
	return s.send(w, v.reply(w, wireSettings(v.Settings())))
}

func wireSettings(now model.Settings) wire.Settings {
	out := wire.Settings{Settings: map[string]int64{}, Defaults: map[string]int64{}}
	for _, name := range fsm.SettingNames() {
		out.Settings[name], _ = fsm.SettingValue(now, name)
		out.Defaults[name], _ = fsm.SettingValue(model.DefaultSettings(), name)
	}
	return out
}

// setSettings changes the settings that the body names, all or none, and
// answers with all of them.
func (s *server) setSettings(ctx context.Context, c *call) (reply, error) {
	var in map[string]json.RawMessage
	if err := decodeBody(c.body, &in); err != nil {
		return reply{}, err
	}
	body := &command.ConfigSet{}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		value, err := settingValue(name, string(in[name]))
		if err != nil {
			return reply{}, err
		}
		body.Settings = append(body.Settings, command.Setting{Name: name, Value: value})
	}
	_, index, err := s.propose(ctx, c.request(), body)
	if err != nil {
		return reply{}, err
	}
	v, err := s.viewOnce(ctx, ReadOptions{Stale: true}) // this node has applied it
	if err != nil {
		return reply{}, err
	}
	return reply{status: http.StatusOK, body: wireSettings(v.Settings()), index: index, leader: s.NodeID}, nil
}

// settingValue reads a whole number, or true or false for a switch: true for a
// number would be 1, which is a millisecond or a byte.
func settingValue(name, text string) (int64, error) {
	word := text == "true" || text == "false"
	if _, known := fsm.SettingValue(model.Settings{}, name); word && known && !fsm.SettingIsSwitch(name) {
		return 0, badRequest("%s is no switch; give a whole number, of milliseconds, a count or bytes as its name says", name)
	}
	if word {
		return map[string]int64{"true": 1, "false": 0}[text], nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, badRequest("the value of %q is no whole number; settings are milliseconds, counts or bytes as their names say, or true or false", name)
	}
	return n, nil
}

// members says which feature levels the controllers know.
func (s *server) members(w http.ResponseWriter, r *http.Request, _ Identity) error {
	v, err := s.viewFor(r, false)
	if err != nil {
		return err
	}
	out := wire.Members{FeatureLevel: v.FeatureLevel(), Generation: v.Generation(), Members: []wire.Member{}}
	for _, m := range v.Members() {
		out.Members = append(out.Members, wire.Member{
			ID: m.ID, Incarnation: m.Incarnation, Supports: m.Supports, Build: m.Build, Since: wireTime(m.SinceMS),
		})
	}
	return s.send(w, v.reply(w, out))
}
