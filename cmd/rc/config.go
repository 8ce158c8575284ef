package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"rcd/client"
	"rcd/internal/yamlconf"
)

// config is whom to ask and as whom. Flags come before the environment, the
// environment before the context, the context before what stands at the top of
// the file. No flag sets addresses or the token, so that neither stands in a
// process list; --context, which names both, is the flag.
type config struct {
	controllers []string
	token       string
	submitter   string

	context string // its name, "" for none
	from    origins
	// err is why the context asked for cannot be had; nobody is asked then.
	err error
}

// origins say where each part of the configuration comes from.
type origins struct{ controllers, token, submitter, context string }

// cluster is what a context names. The same keys at the top of the file are the
// context of whoever has chosen none.
type cluster struct {
	Controller  string    `yaml:"controller"` // the ancestor's key; several are separated by commas
	Controllers addresses `yaml:"controllers"`
	Token       string    `yaml:"token"`
	Submitter   string    `yaml:"submitter"`
}

// addresses are those of controllers: a list, or one text as RC_CONTROLLER has
// it.
type addresses []string

// UnmarshalYAML takes what the parser makes of addresses. Inside of braces it
// takes [10.0.0.1:8080] for a list with a pair in it, which YAML says is a text.
func (a *addresses) UnmarshalYAML(decode func(any) error) error {
	var value any
	if err := decode(&value); err != nil {
		return err
	}
	list, many := value.([]any)
	if !many {
		list = []any{value}
	}
	*a = nil
	for _, item := range list {
		switch item := item.(type) {
		case nil:
			continue
		case string:
			*a = append(*a, splitAddresses(item)...)
			continue
		case map[string]any:
			if text, ok := onePair(item); ok {
				*a = append(*a, text)
				continue
			}
		}
		return errors.New("controllers is a list of addresses: [http://10.0.0.1:8080, http://10.0.0.2:8080]")
	}
	return nil
}

// addresses joins both keys, as RC_CONTROLLER writes them.
func (c cluster) addresses() string {
	return strings.Join(splitAddresses(strings.Join(append(slices.Clone(c.Controllers), c.Controller), ",")), ",")
}

// onePair is a map of one pair as the text that it was.
func onePair(pairs map[string]any) (text string, ok bool) {
	for key, value := range pairs {
		switch value.(type) {
		case string, uint64:
			return fmt.Sprintf("%s:%v", key, value), len(pairs) == 1
		}
	}
	return "", false
}

// configFile is the file's shape. Other programs may keep more in it.
type configFile struct {
	Top            cluster            `yaml:",inline"`
	Contexts       map[string]cluster `yaml:"contexts"`
	CurrentContext string             `yaml:"current-context"`
}

// readConfigFile reads the file at path. One that is absent is empty.
func readConfigFile(path string) (configFile, error) {
	var file configFile
	if path == "" {
		return file, nil
	}
	data, err := os.ReadFile(path)
	if err == nil {
		err = yamlconf.DecodeLoose(path, data, &file)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return configFile{}, err
	}
	return file, nil
}

// loadConfig reads flag, environment and file. A file that is absent is fine;
// one that cannot be read costs one warning and counts as empty.
func loadConfig(flag string, env func(string) string, stderr io.Writer) config {
	path := configPath(env)
	file, err := readConfigFile(path)
	if err != nil {
		fmt.Fprintf(stderr, "rc: warning: %v; the file is ignored\n", err)
	}
	c := config{}
	c.context, c.from.context = pick(source{"--context", flag}, source{"RC_CONTEXT", env("RC_CONTEXT")},
		source{"current-context of " + path, file.CurrentContext})
	chosen, from := file.Top, path
	if c.context != "" {
		var known bool
		if chosen, known = file.Contexts[c.context]; !known {
			c.err = file.noContext(path, c.context, c.from.context)
		}
		from = fmt.Sprintf("context %s of %s", c.context, path)
	}
	// The flag comes before the environment in all that its context says.
	order := func(variable, value string) []source {
		inFile, inEnv := source{from, value}, source{variable, env(variable)}
		if c.from.context == "--context" {
			return []source{inFile, inEnv}
		}
		return []source{inEnv, inFile}
	}
	var addresses string
	addresses, c.from.controllers = pick(append(order("RC_CONTROLLER", chosen.addresses()),
		source{"default", client.DefaultController})...)
	c.token, c.from.token = pick(order("RC_TOKEN", chosen.Token)...)
	c.submitter, c.from.submitter = pick(append(order("RC_SUBMITTER", chosen.Submitter),
		source{path, file.Top.Submitter}, // one person in all contexts that say nothing else
		source{"default", defaultSubmitter(env)})...)
	c.controllers = splitAddresses(addresses)
	return c
}

// splitAddresses takes apart a list separated by commas. It is never nil.
func splitAddresses(list string) []string {
	addresses := []string{}
	for address := range strings.SplitSeq(list, ",") {
		if address = strings.TrimSpace(address); address != "" {
			addresses = append(addresses, address)
		}
	}
	return addresses
}

// noContext says that the file has no context of that name.
func (f configFile) noContext(path, name, from string) error {
	has := "it has none"
	if len(f.Contexts) > 0 {
		has = "it has " + strings.Join(slices.Sorted(maps.Keys(f.Contexts)), ", ")
	}
	if path == "" {
		path = "the configuration file, which has no place without a home directory"
	}
	return absentError(fmt.Sprintf("there is no context %s, which %s asks for, in %s; %s", clean(name), clean(from), path, has))
}

// source is a value and where it comes from.
type source struct{ from, value string }

// pick returns the first value that is not blank, trimmed, and its source.
func pick(sources ...source) (value, from string) {
	for _, s := range sources {
		if value := strings.TrimSpace(s.value); value != "" {
			return value, s.from
		}
	}
	return "", ""
}

func configPath(env func(string) string) string {
	if path := env("RC_CONFIG"); path != "" {
		return path
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "" // no home, no file
	}
	return filepath.Join(dir, "rc", "config.yaml")
}

// defaultSubmitter is user@host, with the session that scripted callers name
// in the ancestor's variable.
func defaultSubmitter(env func(string) string) string {
	name := env("USER")
	if name == "" {
		name = "unknown"
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	submitter := name + "@" + host
	if session := env("CLAUDE_SESSION_ID"); session != "" {
		submitter += "/" + session
	}
	return submitter
}

// firstOf returns the first text that is not blank, trimmed.
func firstOf(texts ...string) string {
	for _, text := range texts {
		if text = strings.TrimSpace(text); text != "" {
			return text
		}
	}
	return ""
}
