package device

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/mhc-go/mhc/internal/tier"
)

func openCPU(index int) (*Device, error) {
	if index != 0 {
		return nil, fmt.Errorf("device cpu:%d, want cpu", index)
	}
	return &Device{Description: describeCPU(), time: wallClock}, nil
}

func listCPU() ([]string, error) { return []string{describeCPU()}, nil }

func describeCPU() string {
	return fmt.Sprintf("%s, %d threads, %v kernels", model(), runtime.GOMAXPROCS(0), tier.Active)
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
