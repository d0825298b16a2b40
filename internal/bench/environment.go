package bench

import (
	"runtime"

	"github.com/mhc-go/mhc/internal/buildinfo"
	"github.com/mhc-go/mhc/internal/device"
	"github.com/mhc-go/mhc/internal/tier"
)

// Environment is what results depend on beside the problem: the first JSON line
// of a run.
type Environment struct {
	Version    string `json:"version"`
	Commit     string `json:"commit"`
	Modified   bool   `json:"modified"` // the commit is not all that was built
	Go         string `json:"go"`
	GOMAXPROCS int    `json:"gomaxprocs"`
	Kernels    string `json:"kernels"`
	Device     string `json:"device"`
	Profiler   string `json:"profiler,omitempty"` // of a GPU's kernels, or why there is none
	Preset     string `json:"preset"`
	Seed       uint64 `json:"seed"`
}

// NewEnvironment describes this build on a device.
func NewEnvironment(d *device.Device, preset string, seed uint64) Environment {
	build := buildinfo.Read()
	by := ""
	if d.Engine != nil {
		if p, err := profiler(); err != nil {
			by = err.Error()
		} else {
			by = p.String()
		}
	}
	return Environment{
		Version: build.Version, Commit: build.Commit, Modified: build.Modified,
		Go: runtime.Version(), GOMAXPROCS: runtime.GOMAXPROCS(0), Kernels: tier.Active.String(),
		Device: d.Description, Profiler: by, Preset: preset, Seed: seed,
	}
}
