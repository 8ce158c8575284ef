package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"

	"rcd/internal/yamlconf"
)

// config is whom to ask and as whom. Flags come before the environment, the
// environment before the file; no flag sets addresses or the token, so that
// neither stands in a process list.
type config struct {
	controllers []string
	token       string
	submitter   string
}

// configFile is the file's shape. Other programs may keep more in it.
type configFile struct {
	Controller string `yaml:"controller"`
	Token      string `yaml:"token"`
	Submitter  string `yaml:"submitter"`
}

// loadConfig reads environment and file. A file that is absent is fine; one
// that cannot be read costs one warning and counts as empty.
func loadConfig(env func(string) string, stderr io.Writer) config {
	var file configFile
	if path := configPath(env); path != "" {
		data, err := os.ReadFile(path)
		if err == nil {
			err = yamlconf.DecodeLoose(path, data, &file)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintf(stderr, "rc: warning: %v; the file is ignored\n", err)
			file = configFile{}
		}
	}
	c := config{
		token:     firstOf(env("RC_TOKEN"), file.Token),
		submitter: firstOf(env("RC_SUBMITTER"), file.Submitter),
	}
	for address := range strings.SplitSeq(firstOf(env("RC_CONTROLLER"), file.Controller), ",") {
		if address = strings.TrimSpace(address); address != "" {
			c.controllers = append(c.controllers, address)
		}
	}
	if c.submitter == "" {
		c.submitter = defaultSubmitter(env)
	}
	return c
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
