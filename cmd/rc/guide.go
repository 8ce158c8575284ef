package main

import (
	_ "embed"
	"fmt"
	"strings"
	"text/template"

	"github.com/alecthomas/kong"
)

// guideText is the guide's prose. Verbs, flags and exit codes are filled in
// from what rc is made of, so that they cannot be out of date.
//
//go:embed guide.md
var guideText string

// guide makes what rc help agents prints.
func guide(rc *kong.Application) (string, error) {
	t, err := template.New("guide").Parse(guideText)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = t.Execute(&out, map[string]string{"Verbs": guideVerbs(rc.Node), "Exits": guideExits()})
	return out.String(), err
}

// guideVerbs lists what people and programs of all roles use; what only looks
// at the controllers or is for admins they find in rc --help.
func guideVerbs(rc *kong.Node) string {
	var b strings.Builder
	for _, verb := range rc.Leaves(true) {
		if verb.Parent != rc || strings.Contains(verb.Help, "(admin)") || verb.Hidden {
			continue
		}
		fmt.Fprintf(&b, "- `rc %s`: %s\n", strings.ReplaceAll(verb.Summary(), " [flags]", ""), verb.Help)
		for _, flag := range verb.Flags {
			if flag.Name != "help" && !flag.Hidden {
				fmt.Fprintf(&b, "  - `%s`: %s\n", flagName(flag), flag.Help)
			}
		}
	}
	return strings.TrimRight(b.String(), "\n")
}

func flagName(flag *kong.Flag) string {
	text := "--" + flag.Name
	if flag.Short != 0 {
		text = "-" + string(flag.Short) + ", " + text
	}
	if !flag.IsBool() {
		text += " " + firstOf(flag.PlaceHolder, strings.ToUpper(flag.Name))
	}
	return text
}

// guideExits is the table of exit codes, without a line end behind it.
func guideExits() string {
	var b strings.Builder
	b.WriteString("| code | meaning |\n|---|---|\n")
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "| %d | %s |\n", e.code, e.meaning)
	}
	return strings.TrimRight(b.String(), "\n")
}
