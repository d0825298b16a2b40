//go:build !mhccuda && !(linux && !android && (amd64 || arm64))

package driver

import (
	"errors"
	"fmt"
	"runtime"
)

// Binding names the binding of this build.
const Binding = "none"

// Open returns an error: this build has no binding for its platform.
func Open() (Driver, error) {
	return nil, fmt.Errorf("driver: no CUDA binding for %s/%s: %w", runtime.GOOS, runtime.GOARCH, errors.ErrUnsupported)
}
