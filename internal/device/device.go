// Package device turns the names of devices, as the programs' flags take them,
// into machine options. It is the only place that knows which there are.
package device

import (
	"fmt"
	"strconv"
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

// kind is a kind of devices.
type kind struct {
	name string
	open func(index int) (*Device, error)
	list func() ([]string, error) // descriptions, by index
}

var kinds = []kind{
	{"cpu", openCPU, listCPU},
	{"cuda", openCUDA, listCUDA},
}

// Names are those that Open takes, for the help of flags.
func Names() []string { return []string{"cpu", "cuda", "cuda:INDEX"} }

// Open makes a device ready: the kind's first, or with :INDEX another. The error
// says why where there is none.
func Open(name string) (*Device, error) {
	kindName, suffix, given := strings.Cut(name, ":")
	index := 0
	if given {
		var err error
		if index, err = strconv.Atoi(suffix); err != nil {
			return nil, unknown(name)
		}
	}
	for _, k := range kinds {
		if k.name == kindName {
			d, err := k.open(index)
			if err != nil {
				return nil, err
			}
			d.Name = name
			return d, nil
		}
	}
	return nil, unknown(name)
}

func unknown(name string) error {
	return fmt.Errorf("device %q, want one of %s", name, strings.Join(Names(), ", "))
}

// List describes every device by name. Where a kind has none, the line says why.
func List() (lines [][2]string) {
	for _, k := range kinds {
		all, err := k.list()
		if err != nil {
			lines = append(lines, [2]string{k.name, "none: " + err.Error()})
		}
		for i, description := range all {
			name := k.name
			if i > 0 {
				name += ":" + strconv.Itoa(i)
			}
			lines = append(lines, [2]string{name, description})
		}
	}
	return lines
}

// Options are the options of a machine that runs on d.
func (d *Device) Options() []gorgonia.VMOpt {
	if d.Engine == nil {
		return nil
	}
	return []gorgonia.VMOpt{gorgonia.WithEngine(d.Engine)}
}

// Time runs f and returns how long it took on the device.
func (d *Device) Time(f func() error) (time.Duration, error) { return d.time(f) }

// Close gives back what Open took.
func (d *Device) Close() error {
	if d.close == nil {
		return nil
	}
	return d.close()
}

func wallClock(f func() error) (time.Duration, error) {
	start := time.Now()
	err := f()
	return time.Since(start), err
}
