package main

import (
	"fmt"
	"runtime"
	"text/tabwriter"

	"github.com/mhc-go/mhc/internal/buildinfo"
	"github.com/mhc-go/mhc/internal/device"
	"github.com/mhc-go/mhc/internal/tier"
)

type infoCommand struct{}

// Run writes what is known of this build and this machine.
func (infoCommand) Run(std streams) error {
	table := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	build := buildinfo.Read()
	modified := ""
	if build.Modified {
		modified = " (modified)"
	}
	fmt.Fprintf(table, "version\t%s\n", build.Version)
	fmt.Fprintf(table, "commit\t%s %s%s\n", build.Commit, build.Time, modified)
	fmt.Fprintf(table, "go\t%s %s/%s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, module := range []string{"gorgonia.org/gorgonia", "gorgonia.org/tensor"} {
		fmt.Fprintf(table, "%s\t%s\n", module, build.Modules[module])
	}
	fmt.Fprintf(table, "kernels\t%v in use, %v available (%s=go, avx2 or avx512 lowers it)\n", tier.Active, tier.Available(), tier.Variable)
	for _, line := range device.List() {
		fmt.Fprintf(table, "device %s\t%s\n", line[0], line[1])
	}
	return table.Flush()
}
