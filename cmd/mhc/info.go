package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/mhc-go/mhc/internal/device"
	"github.com/mhc-go/mhc/internal/tier"
)

type infoCommand struct{}

// Run writes what is known of this build and this machine.
func (infoCommand) Run(std streams) error {
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	build := readBuild()
	fmt.Fprintf(table, "version\t%s\n", build.version)
	fmt.Fprintf(table, "commit\t%s\n", build.commit)
	fmt.Fprintf(table, "go\t%s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, module := range []string{"gorgonia.org/gorgonia", "gorgonia.org/tensor"} {
		fmt.Fprintf(table, "%s\t%s\n", module, build.modules[module])
	}
	fmt.Fprintf(table, "kernels\t%v in use, %v available (%s=go, avx2 or avx512 lowers it)\n", tier.Active, tier.Available(), tier.Variable)
	for _, line := range device.List() {
		fmt.Fprintf(table, "device %s\t%s\n", line[0], line[1])
	}
	return table.Flush()
}

// build is what the Go tool has recorded in the program.
type build struct {
	version, commit string
	modules         map[string]string
}

func readBuild() build {
	b := build{version: "unknown", commit: "unknown", modules: map[string]string{}}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.version = info.Main.Version
	for _, m := range info.Deps {
		b.modules[m.Path] = m.Version
	}
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if revision := settings["vcs.revision"]; revision != "" {
		b.commit = strings.TrimSpace(revision + " " + settings["vcs.time"])
		if settings["vcs.modified"] == "true" {
			b.commit += " (modified)"
		}
	}
	return b
}
