package golden

import (
	"fmt"
	"path/filepath"
	"strconv"

	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/graph"
)

// file is a file of reference values in memory.
type file struct {
	name    string // without the folder
	meta    map[string]string
	tensors graph.State
}

func read(path string) (*file, error) {
	tensors, meta, err := graph.ReadState(path, nil)
	if err != nil {
		return nil, err
	}
	return &file{name: filepath.Base(path), meta: meta, tensors: tensors}, nil
}

// has says whether the file holds a tensor.
func (f *file) has(name string) bool { return f.tensors[name] != nil }

// tensor is the named tensor.
func (f *file) tensor(name string) (*tensor.Dense, error) {
	if t := f.tensors[name]; t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("tensor %s is missing", name)
}

// wide is the named tensor's numbers in float64, which is exact.
func (f *file) wide(name string) ([]float64, error) {
	t, err := f.tensor(name)
	if err != nil {
		return nil, err
	}
	return numbers(name, t)
}

// float is a setting of the file.
func (f *file) float(name string) (float64, error) {
	v, err := strconv.ParseFloat(f.meta[name], 64)
	if err != nil {
		return 0, fmt.Errorf("setting %s is %q, want a number", name, f.meta[name])
	}
	return v, nil
}

// int is a setting of the file.
func (f *file) int(name string) (int, error) {
	v, err := strconv.Atoi(f.meta[name])
	if err != nil {
		return 0, fmt.Errorf("setting %s is %q, want a whole number", name, f.meta[name])
	}
	return v, nil
}

// numbers is a copy of a tensor's numbers in float64.
func numbers(name string, v any) ([]float64, error) {
	t, ok := v.(*tensor.Dense)
	if !ok {
		return nil, fmt.Errorf("%s is a %T, want a tensor", name, v)
	}
	wide, err := graph.Convert(t, tensor.Float64)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return wide.Float64s(), nil
}
