// Package golden checks the operators against reference values of another
// framework: files of inputs, outputs and gradients, computed in float64 from
// the inputs as they are stored (tests/testdata/golden/README.md has the format).
package golden

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/internal/device"
	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/op"
)

// Options say how files are run.
type Options struct {
	Machines []machine.Kind
	Device   *device.Device
	// Widen also runs every file with its inputs widened to float64, which is
	// exact, so that the same references hold to the float64 bounds.
	Widen bool
}

// Row is the comparison of one tensor with its reference.
type Row struct {
	File    string `json:"file"`
	Machine string `json:"vm"`
	Device  string `json:"device"`
	// Dtype is that of the streams.
	Dtype  string `json:"dtype"`
	Tensor string `json:"tensor"`
	// Error is the norm of the difference over the norm of the reference, or over
	// what the reference resolves where that is larger; of the losses of a training
	// run, the largest difference of a step.
	Error Number `json:"error"`
	Bound Number `json:"bound"`
	Pass  bool   `json:"pass"`
}

// Number is a float64 that is null in JSON where it is not finite.
type Number float64

// MarshalJSON writes the number.
func (n Number) MarshalJSON() ([]byte, error) {
	if f := float64(n); math.IsNaN(f) || math.IsInf(f, 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// Files lists the files of reference values that paths stand for: themselves, or
// those in a folder, by name. A folder without any is an error.
func Files(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		in, err := filepath.Glob(filepath.Join(path, "*.safetensors"))
		if err != nil {
			return nil, err
		}
		if len(in) == 0 {
			return nil, fmt.Errorf("%s: no *.safetensors files in this folder", path)
		}
		files = append(files, in...)
	}
	return files, nil
}

// Verify runs one file and compares everything that it has references for. The
// error says why the file cannot be read or run.
func Verify(path string, opts Options) ([]Row, error) {
	f, err := read(path)
	if err != nil {
		return nil, err
	}
	verify, stored, err := f.kind()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	dtypes := []tensor.Dtype{stored}
	if opts.Widen && stored != tensor.Float64 {
		dtypes = append(dtypes, tensor.Float64)
	}
	var rows []Row
	for _, dt := range dtypes {
		for _, kind := range opts.Machines {
			r := &run{file: f, machine: kind, device: opts.Device, dtype: dt}
			if err := guarded(verify, r); err != nil {
				return rows, fmt.Errorf("%s: %v machine, %v: %w", path, kind, dt, err)
			}
			rows = append(rows, r.rows...)
		}
	}
	return rows, nil
}

// guarded calls f; where Gorgonia panics at what a file holds, it returns an
// error.
func guarded(f func(*run) error, r *run) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f(r)
}

// kind says by its tensors what a file describes, and the dtype of its streams.
func (f *file) kind() (verify func(*run) error, stored tensor.Dtype, err error) {
	for _, k := range []struct {
		tensors []string
		verify  func(*run) error
	}{
		{[]string{"x", "phi"}, coefficients},
		{[]string{"x", "f_out"}, application},
		{[]string{"logits", "upstream"}, projection},
	} {
		if !slices.ContainsFunc(k.tensors, func(name string) bool { return !f.has(name) }) {
			return k.verify, f.tensors[k.tensors[0]].Dtype(), nil
		}
	}
	if f.has("loss") && f.has("input_ids") {
		return training, tensor.Float64, nil
	}
	names := make([]string, 0, len(f.tensors))
	for name := range f.tensors {
		names = append(names, name)
	}
	slices.Sort(names)
	return nil, stored, fmt.Errorf("no file of reference values: its tensors are %s", strings.Join(names, ", "))
}

// bounds are the errors that must not be exceeded.
type bounds struct{ coefficients, x, phi, parameters float64 }

// bounds are those of the device and dtype, before 16-bit tensors are rounded; but
// a GPU's of x includes the rounding.
func (r *run) bounds() bounds {
	switch {
	case r.dtype == tensor.Float64:
		return bounds{1e-12, 1e-12, 1e-12, 1e-12}
	case r.device.Engine == nil:
		return bounds{2e-6, 1e-5, 1e-5, 1e-5}
	case r.dtype == op.BFloat16 || r.dtype == op.Float16:
		return bounds{1e-5, 4e-3, 1e-4, 1e-4}
	}
	return bounds{1e-5, 2e-5, 2e-5, 2e-5}
}

// exception is a tensor of a file in float32 whose bound cannot be reached.
type exception struct {
	file, tensor string
	gpu          bool
}

var exceptions = map[exception]float64{
	// A sum whose terms' sizes add up to 578 times the result: the rounding of
	// mix and h_post, 2^-24 each, shows as 578 * 2^-24 and more.
	{"coeffs_f32_tiny_x.safetensors", "grad_alpha_post", false}: 4e-5,
	{"coeffs_f32_tiny_x.safetensors", "grad_alpha_post", true}:  4e-5,
	// All but one term of the sum vanish, and that is of a logit near 1 where the
	// others are near 40: the rounding of mix, 4e-7 of its norm, is 40 times that of
	// this number.
	{"coeffs_f32_large_logits.safetensors", "grad_alpha_pre", true}: 6e-5,
}
