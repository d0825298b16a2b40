package golden

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/nlpodyssey/safetensors"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/dtype"
)

// file is a file of reference values in memory.
type file struct {
	name    string // without the folder
	meta    map[string]string
	tensors map[string]*tensor.Dense
}

func read(path string) (*file, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	_, header, err := safetensors.ReadMetadata(data)
	if err != nil {
		return nil, fmt.Errorf("%s: not a safetensors file: %w", path, err)
	}
	st, err := safetensors.Deserialize(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f := &file{name: filepath.Base(path), meta: header.Metadata(), tensors: map[string]*tensor.Dense{}}
	for _, t := range st.Tensors() {
		if f.tensors[t.Name], err = decode(t.TensorView); err != nil {
			return nil, fmt.Errorf("%s: tensor %s: %w", path, t.Name, err)
		}
	}
	return f, nil
}

func decode(v safetensors.TensorView) (*tensor.Dense, error) {
	shape, n := make([]int, len(v.Shape())), 1
	for i, d := range v.Shape() {
		shape[i] = int(d)
		n *= int(d)
	}
	var data any
	switch v.DType() {
	case safetensors.F64:
		data = make([]float64, n)
	case safetensors.F32:
		data = make([]float32, n)
	case safetensors.BF16:
		data = make([]dtype.BFloat16, n)
	case safetensors.F16:
		data = make([]dtype.Float16, n)
	case safetensors.I64:
		data = make([]int64, n)
	default:
		return nil, fmt.Errorf("dtype %v, want F64, F32, BF16, F16 or I64", v.DType())
	}
	if n == 0 {
		return nil, fmt.Errorf("shape %v has no elements", shape)
	}
	if _, err := binary.Decode(v.Data(), binary.LittleEndian, data); err != nil {
		return nil, err
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data)), nil
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
	return widen(t.Data())
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

// widen converts numbers of any float type to float64.
func widen(data any) ([]float64, error) {
	switch d := data.(type) {
	case float32:
		return []float64{float64(d)}, nil
	case float64:
		return []float64{d}, nil
	case []float32:
		return widened(d), nil
	case []float64:
		return widened(d), nil
	case []dtype.BFloat16:
		return widened(d), nil
	case []dtype.Float16:
		return widened(d), nil
	}
	return nil, fmt.Errorf("%T, want floats", data)
}

func widened[S dtype.Storage](src []S) []float64 {
	dst := make([]float64, len(src))
	dtype.Widen(dst, src)
	return dst
}
