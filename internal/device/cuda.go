package device

import (
	"fmt"

	"github.com/mhc-go/mhc/cuda"
)

// openCUDA takes a GPU. What the engine does not know, float64 for one, it
// leaves to the CPU.
func openCUDA(index int) (*Device, error) {
	e, err := cuda.New(cuda.Device(index))
	if err != nil {
		return nil, err
	}
	return &Device{
		Description: describeCUDA(e.Info()),
		Engine:      e,
		time:        wallClock, // an op returns when its result is in host memory
		close:       e.Close,
	}, nil
}

func listCUDA() ([]string, error) {
	infos, err := cuda.Devices()
	if err != nil {
		return nil, fmt.Errorf("%w (%s binding)", err, cuda.Binding())
	}
	lines := make([]string, len(infos))
	for i, info := range infos {
		lines[i] = describeCUDA(info)
		if err := info.Supported(); err != nil {
			lines[i] += ", not supported: " + err.Error()
		}
	}
	return lines, nil
}

func describeCUDA(info cuda.Info) string { return info.String() + ", " + cuda.Binding() + " binding" }
