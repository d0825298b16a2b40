//go:build !(linux && !android && (amd64 || arm64))

package cupti

import (
	"errors"
	"fmt"
	"runtime"
)

// Profiler has nothing to trace with on this platform.
type Profiler struct{}

// Open returns an error: CUPTI is not read on this platform.
func Open() (*Profiler, error) {
	return nil, fmt.Errorf("cupti: not read on %s/%s: %w", runtime.GOOS, runtime.GOARCH, errors.ErrUnsupported)
}

func (*Profiler) String() string { return "" }

// Trace returns an error.
func (*Profiler) Trace(func() error) ([]Kernel, error) { return nil, errors.ErrUnsupported }
