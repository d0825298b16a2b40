// Package device turns the names of devices, as the programs' flags take them,
// into machine options. It is the only place that knows which there are.
package device

import (
	"fmt"
	"strings"
	"time"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Device is where the ops of a graph run.
type Device struct {
	// Name is what flags call it.
	Name string
	// Description is one line on what it is.
	Description string
	// Engine is what machines are made with; nil is Gorgonia's own, on the CPU.
	Engine tensor.Engine

	time  func(f func() error) (time.Duration, error)
	close func() error
}

// devices lists every device that a name can stand for, the default first.
var devices = []struct {
	name string
	open func() (*Device, error)
}{
	{"cpu", openCPU},
}

// Names are the names that Open knows.
func Names() []string {
	names := make([]string, len(devices))
	for i, d := range devices {
		names[i] = d.name
	}
	return names
}

// Open makes a device ready. The error says why where there is none.
func Open(name string) (*Device, error) {
	for _, d := range devices {
		if d.name == name {
			dev, err := d.open()
			if err != nil {
				return nil, fmt.Errorf("device %s: %w", name, err)
			}
			dev.Name = name
			return dev, nil
		}
	}
	return nil, fmt.Errorf("device %q, want one of %s", name, strings.Join(Names(), ", "))
}

// Options are the options of a machine that runs on d.
func (d *Device) Options() []gorgonia.VMOpt {
	if d.Engine == nil {
		return nil
	}
	return []gorgonia.VMOpt{gorgonia.WithEngine(d.Engine)}
}

// Time runs f and returns how long the device took, by the device's own clock.
func (d *Device) Time(f func() error) (time.Duration, error) { return d.time(f) }

// Close gives back what Open took.
func (d *Device) Close() error {
	if d.close == nil {
		return nil
	}
	return d.close()
}
