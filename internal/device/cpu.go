package device

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/mhc-go/mhc/internal/tier"
)

func openCPU() (*Device, error) {
	return &Device{
		Description: fmt.Sprintf("%s, %d threads, %v kernels", model(), runtime.GOMAXPROCS(0), tier.Active),
		time: func(f func() error) (time.Duration, error) {
			start := time.Now()
			err := f()
			return time.Since(start), err
		},
	}, nil
}

// model is the name that the operating system has for the CPU, or its
// architecture.
func model() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
