package cuda

import (
	"fmt"

	"github.com/mhc-go/mhc/cuda/driver"
	"github.com/mhc-go/mhc/cuda/plan"
)

// Info describes a device.
type Info struct {
	Index  int
	Name   string
	Memory int64 // bytes
	Major  int   // of the compute capability
	Minor  int
	L2     int // bytes of the second-level cache
	Driver int // CUDA version of the driver, 1000 major + 10 minor
	// Limits is what launch plans depend on.
	Limits plan.Limits
}

// minMajor is the oldest architecture that the kernels are built for, sm_80.
const minMajor = 8

// Supported returns an error that says why the kernels cannot run on the device,
// or nil.
func (i Info) Supported() error {
	if i.Major < minMajor {
		return fmt.Errorf("cuda: device %d, %s, is sm_%d%d, want sm_80 or newer", i.Index, i.Name, i.Major, i.Minor)
	}
	return nil
}

func (i Info) String() string {
	return fmt.Sprintf("%d: %s, sm_%d%d, %d multiprocessors, %d MiB, driver CUDA %d.%d",
		i.Index, i.Name, i.Major, i.Minor, i.Limits.SMs, i.Memory>>20, i.Driver/1000, i.Driver%1000/10)
}

// Binding names the binding of this build: "purego", "gorgonia.org/cu", or
// "none" where the platform has neither.
func Binding() string { return driver.Binding }

// Devices lists the CUDA devices of this machine, whether supported or not. It
// returns an error that says why where the driver finds none.
func Devices() ([]Info, error) {
	drv, err := driver.Open()
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	return devices(drv)
}

func devices(drv driver.Driver) ([]Info, error) {
	n, err := drv.DeviceCount()
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	infos := make([]Info, n)
	for i := range infos {
		if infos[i], err = describe(drv, i); err != nil {
			return nil, err
		}
	}
	return infos, nil
}

func describe(drv driver.Driver, index int) (Info, error) {
	info := Info{Index: index}
	var err error
	if info.Name, err = drv.DeviceName(index); err != nil {
		return info, fmt.Errorf("cuda: device %d: %w", index, err)
	}
	if info.Memory, err = drv.DeviceMemory(index); err != nil {
		return info, fmt.Errorf("cuda: device %d: %w", index, err)
	}
	if info.Driver, err = drv.DriverVersion(); err != nil {
		return info, fmt.Errorf("cuda: %w", err)
	}
	for _, a := range []struct {
		to *int
		is driver.Attribute
	}{
		{&info.Major, driver.ComputeCapabilityMajor},
		{&info.Minor, driver.ComputeCapabilityMinor},
		{&info.L2, driver.L2CacheSize},
		{&info.Limits.SMs, driver.MultiprocessorCount},
		{&info.Limits.SharedPerSM, driver.SharedMemoryPerSM},
		{&info.Limits.SharedPerBlock, driver.SharedMemoryPerBlock},
	} {
		if *a.to, err = drv.DeviceAttribute(index, a.is); err != nil {
			return info, fmt.Errorf("cuda: device %d: attribute %d: %w", index, a.is, err)
		}
	}
	return info, nil
}
