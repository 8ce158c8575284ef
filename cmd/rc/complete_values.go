package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"rcd/client"
	"rcd/wire"
)

var bareType = reflect.TypeFor[bareFormat]()

// values returns what a flag or argument may be. What its name says goes for
// every verb: a <job> is a job, a --device a device.
func (a *app) values(node *kong.Node, v *kong.Value) []candidate {
	switch {
	case v.Target.Type() == bareType:
		return words(formats...)
	case v.Enum != "":
		return words(strings.Split(v.Enum, ",")...)
	}
	switch v.Name {
	case "job", "jobs":
		return a.jobCandidates(node.Name)
	case "hold", "in":
		return a.holdCandidates()
	case "device":
		if node.Name == "describe" {
			return append(a.deviceCandidates(), a.jobCandidates(node.Name)...)
		}
		return a.deviceCandidates()
	case "host":
		return a.hostCandidates()
	case "state":
		return words("queued", "assigned", "running", "succeeded", "failed", "killed", "lost")
	case "context":
		return a.contextCandidates()
	case "node":
		return a.nodeCandidates()
	case "topic":
		return append(verbsOf(node.Parent), candidate{topicAgents, "a guide for programs"})
	case "name":
		switch {
		case node.Name == "settings":
			return a.settingCandidates()
		case node.Parent != nil && node.Parent.Name == "context":
			return a.contextCandidates()
		}
	}
	return nil
}

func words(all ...string) []candidate {
	var list []candidate
	for _, word := range all {
		list = append(list, candidate{word: word})
	}
	return list
}

// ask calls f with a client; without an answer there are no candidates.
func (a *app) ask(f func(*client.Client) error) {
	c, err := a.client()
	if err != nil {
		return
	}
	defer c.Close()
	_ = f(c) // what was found until then is better than nothing
}

// overVerbs are the verbs for which a job that has ended is one as well.
var overVerbs = []string{"logs", "attach"}

// jobCandidates lists jobs, newest first: for most verbs those that have not
// ended.
func (a *app) jobCandidates(verb string) []candidate {
	states := []string{"running", "assigned", "queued"}
	if slices.Contains(overVerbs, verb) {
		states = []string{""}
	}
	var list []candidate
	a.ask(func(c *client.Client) error {
		for _, state := range states {
			jobs, err := c.Jobs(a.ctx, client.JobsOptions{Limit: maxCandidates, State: state})
			if err != nil {
				return err
			}
			for _, job := range jobs {
				list = append(list, candidate{job.ID, jobAbout(&job)})
			}
		}
		return nil
	})
	return list
}

// holdCandidates lists the submitter's own holds that have not ended.
func (a *app) holdCandidates() []candidate {
	var list []candidate
	a.ask(func(c *client.Client) error {
		for _, state := range []string{"running", "assigned", "queued"} {
			jobs, err := c.Jobs(a.ctx, client.JobsOptions{Limit: maxCandidates, State: state, Submitter: a.conf.submitter})
			if err != nil {
				return err
			}
			for _, job := range jobs {
				if job.Kind == kindHold {
					list = append(list, candidate{job.ID, withNote(job.State, firstOf(job.DeviceID, job.Selector)+": "+job.Reason)})
				}
			}
		}
		return nil
	})
	return list
}

func jobAbout(job *wire.Job) string {
	where := firstOf(job.DeviceID, job.Selector)
	return strings.TrimSpace(fmt.Sprintf("%s %s: %s", job.State, where, firstOf(commandLine(job.Command), job.Reason)))
}

func (a *app) deviceCandidates() []candidate {
	var list []candidate
	a.ask(func(c *client.Client) error {
		devices, err := c.Devices(a.ctx)
		for _, d := range devices {
			list = append(list, candidate{d.Device.ID, withNote(d.Device.State, d.Holder)})
		}
		return err
	})
	return list
}

func (a *app) hostCandidates() []candidate {
	hosts := map[string]bool{}
	a.ask(func(c *client.Client) error {
		devices, err := c.Devices(a.ctx)
		for _, d := range devices {
			hosts[d.Device.Host] = true
		}
		return err
	})
	return words(slices.Sorted(maps.Keys(hosts))...)
}

func (a *app) nodeCandidates() []candidate {
	var list []candidate
	a.ask(func(c *client.Client) error {
		peers, err := c.RaftPeers(a.ctx, "")
		for _, p := range peers {
			list = append(list, candidate{p.ID, firstOf(p.HTTP, p.Address)})
		}
		return err
	})
	return list
}

func (a *app) settingCandidates() []candidate {
	var list []candidate
	a.ask(func(c *client.Client) error {
		all, err := c.Settings(a.ctx)
		if err == nil {
			list = words(slices.Sorted(maps.Keys(all.Settings))...)
		}
		return err
	})
	return list
}

func (a *app) contextCandidates() []candidate {
	file, err := readConfigFile(configPath(a.env))
	if err != nil {
		return nil
	}
	var list []candidate
	for _, name := range slices.Sorted(maps.Keys(file.Contexts)) {
		list = append(list, candidate{name, file.Contexts[name].addresses()})
	}
	return list
}
