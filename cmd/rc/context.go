package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"rcd/internal/yamlconf"
)

type contextCmd struct {
	List contextListCmd `cmd:"" help:"List the contexts of the configuration file."`
	Show contextShowCmd `cmd:"" help:"Show whom rc asks and as whom, and where each part comes from."`
	Use  contextUseCmd  `cmd:"" help:"Make a context the current one."`
}

// Help is shown by rc context --help.
func (contextCmd) Help() string {
	return `A context names a cluster: its controllers, a token for it and whom jobs are submitted as. They stand in the configuration file:

    current-context: lab
    contexts:
      lab:
        controllers: [10.0.0.1:8080, 10.0.0.2:8080, 10.0.0.3:8080]
        token: s3cret
      home:
        controllers: [localhost:8080]

Order: --context and what its context says, then RC_CONTROLLER, RC_TOKEN and RC_SUBMITTER, then the context of RC_CONTEXT or else the current one. Without a context the same keys (and controller) at the top of the file count.

Examples:

    rc context list
    rc context use lab
    rc --context home devices`
}

type contextListCmd struct{ format }

// Help is shown by rc context list --help.
func (contextListCmd) Help() string {
	return `Tokens are never shown, only whether there is one.

Examples:

    rc context list
    rc context list -o name`
}

// contextRow is a context as it is listed.
type contextRow struct {
	Name        string   `json:"name"`
	InUse       bool     `json:"in_use"`
	Controllers []string `json:"controllers"`
	Submitter   string   `json:"submitter"`
	Token       bool     `json:"token"` // whether there is one
}

var contextListing = listing[contextRow]{
	name: func(c contextRow) string { return c.Name },
	columns: []column[contextRow]{
		{"CONTEXT", allTables, func(c contextRow) string { return c.Name }},
		{"IN USE", allTables, func(c contextRow) string { return yesNo(c.InUse) }},
		{"CONTROLLERS", allTables, func(c contextRow) string { return strings.Join(c.Controllers, ",") }},
		{"SUBMITTER", allTables, func(c contextRow) string { return c.Submitter }},
		{"TOKEN", allTables, func(c contextRow) string { return yesNo(c.Token) }},
	},
}

func (v *contextListCmd) Run(a *app) error {
	file, err := readConfigFile(configPath(a.env))
	if err != nil {
		return err
	}
	var rows []contextRow
	for _, name := range slices.Sorted(maps.Keys(file.Contexts)) {
		c := file.Contexts[name]
		rows = append(rows, contextRow{name, name == a.conf.context, splitAddresses(c.addresses()), c.Submitter, c.Token != ""})
	}
	return contextListing.print(a.stdout, v.Output, rows, nil)
}

type contextShowCmd struct {
	Context string `arg:"" optional:"" name:"name" help:"Context; the one in use by default."`
	format
}

// Help is shown by rc context show --help.
func (contextShowCmd) Help() string {
	return `Says what the verbs would use, from flag, environment and file together. The token itself is not shown.

Examples:

    rc context show
    rc context show lab -o json`
}

func (v *contextShowCmd) Run(a *app) error {
	conf := a.conf
	if v.Context != "" {
		conf = loadConfig(v.Context, a.env, a.stderr)
	}
	if conf.err != nil {
		return conf.err
	}
	token := "none"
	if conf.token != "" {
		token = "set"
	}
	type part struct {
		Value string `json:"value"`
		From  string `json:"from"`
	}
	shown := struct {
		Context     part     `json:"context"`
		Controllers []string `json:"controllers"`
		From        string   `json:"controllers_from"`
		Token       part     `json:"token"`
		Submitter   part     `json:"submitter"`
	}{part{conf.context, conf.from.context}, conf.controllers, conf.from.controllers, part{token, conf.from.token}, part{conf.submitter, conf.from.submitter}}
	return v.show(a.stdout, shown, conf.context, func() error {
		t := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
		for _, row := range [][3]string{
			{"context", firstOf(conf.context, "none"), conf.from.context},
			{"controllers", strings.Join(conf.controllers, ","), conf.from.controllers},
			{"token", token, conf.from.token},
			{"submitter", conf.submitter, conf.from.submitter},
		} {
			fmt.Fprintf(t, "%s\t%s\t%s\n", row[0], clean(row[1]), clean(firstOf(row[2], "-")))
		}
		return t.Flush()
	})
}

type contextUseCmd struct {
	Context string `arg:"" name:"name" help:"Context of the configuration file."`
}

// Help is shown by rc context use --help.
func (contextUseCmd) Help() string {
	return `Sets current-context in the configuration file; the rest of it, comments too, stays as it is.

Example:

    rc context use lab`
}

func (v *contextUseCmd) Run(a *app) error {
	path := configPath(a.env)
	file, err := readConfigFile(path)
	if err != nil {
		return err
	}
	if _, known := file.Contexts[v.Context]; !known {
		return file.noContext(path, v.Context, "rc context use")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if data, err = yamlconf.SetKey(path, data, "current-context", v.Context); err != nil {
		return err
	}
	if err := replaceFile(path, data); err != nil {
		return err
	}
	fmt.Fprintf(a.stdout, "%s\n", clean(v.Context))
	for _, variable := range []string{"RC_CONTEXT", "RC_CONTROLLER", "RC_TOKEN"} {
		if a.env(variable) != "" {
			a.say("%s is set and comes before the context of the file", variable)
		}
	}
	return nil
}

// replaceFile puts a new content beside the file and renames it, so that the
// file is never half of anything. A link stays one; the mode stays, because
// the file may hold a token.
func replaceFile(path string, data []byte) (err error) {
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	next, err := os.CreateTemp(filepath.Dir(path), ".config-*")
	if err != nil {
		return err
	}
	defer func() {
		if gone := os.Remove(next.Name()); err == nil && !errors.Is(gone, fs.ErrNotExist) {
			err = gone
		}
	}()
	_, err = next.Write(data)
	err = errors.Join(err, next.Chmod(info.Mode().Perm()), next.Sync(), next.Close())
	if err != nil {
		return err
	}
	return os.Rename(next.Name(), path)
}
