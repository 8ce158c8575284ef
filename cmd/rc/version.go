package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCmd struct{}

func (versionCmd) Run(a *app) error {
	version := "(devel)"
	revision := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		version = firstOf(info.Main.Version, version)
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				revision = " " + setting.Value
			}
		}
	}
	fmt.Fprintf(a.stdout, "rc %s%s %s %s/%s\n", version, revision, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}
