package device

import "github.com/mhc-go/mhc/cuda"

func openCUDA() (*Device, error) {
	e, err := cuda.New()
	if err != nil {
		return nil, err
	}
	return &Device{
		Description: e.Info().String() + ", through " + cuda.Binding(),
		Engine:      e,
		time:        wallClock, // an op returns when its result is in host memory
		close:       e.Close,
	}, nil
}
