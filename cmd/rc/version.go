package main

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"text/tabwriter"
	"time"

	"rcd/wire"
)

// versionPatience bounds the look at the cluster: whoever wants to know what
// runs does not want to wait for what does not.
const versionPatience = 3 * time.Second

type versionCmd struct {
	Client bool `help:"Only the version of rc; asks nobody."`
	format
}

// Help is shown by rc version --help.
func (versionCmd) Help() string {
	return `Prints the version of rc, and each controller's build with the highest feature level that it knows. A cluster that does not answer is said on stderr and in the exit code; what rc itself is stands on stdout all the same.

Examples:

    rc version
    rc version --client
    rc version -o json`
}

// versions is what -o json prints.
type versions struct {
	Client  clientVersion `json:"client"`
	Cluster *wire.Members `json:"cluster"` // null when nobody was asked or answered
}

type clientVersion struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func (v *versionCmd) Run(a *app) error {
	all := versions{Client: ownVersion()}
	var err error
	if !v.Client {
		all.Cluster, err = v.cluster(a)
	}
	shown := v.show(a.stdout, all, all.Client.Version, func() error { return printVersions(a.stdout, all) })
	if err != nil {
		return err
	}
	return shown
}

func (v *versionCmd) cluster(a *app) (*wire.Members, error) {
	c, err := a.client()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(a.ctx, versionPatience)
	defer cancel()
	return c.Members(ctx)
}

func ownVersion() clientVersion {
	v := clientVersion{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		v.Version = firstOf(info.Main.Version, v.Version)
		for _, setting := range info.Settings {
			if setting.Key == "vcs.revision" {
				v.Revision = setting.Value
			}
		}
	}
	return v
}

func printVersions(w io.Writer, all versions) error {
	revision := ""
	if all.Client.Revision != "" {
		revision = " " + all.Client.Revision
	}
	fmt.Fprintf(w, "rc %s%s %s %s\n", all.Client.Version, revision, all.Client.Go, all.Client.Platform)
	if all.Cluster == nil {
		return nil
	}
	fmt.Fprintf(w, "cluster: feature level %d, generation %d\n", all.Cluster.FeatureLevel, all.Cluster.Generation)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, m := range all.Cluster.Members {
		fmt.Fprintf(t, "  %s\t%s\tknows level %d\n", clean(m.ID), clean(firstOf(m.Build, "unknown build")), m.Supports)
	}
	return t.Flush()
}
