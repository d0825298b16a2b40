package op

import (
	"cmp"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/op/fused"
)

// Cast converts x, of any shape, to another dtype: float32, float64, [BFloat16] or
// [Float16], rounding to nearest even. Its gradient is cast back to x's dtype. A
// node of that dtype already is returned as it is.
//
// It returns an error if the node is nil or a scalar, and for other dtypes.
func Cast(x *gorgonia.Node, to tensor.Dtype) (*gorgonia.Node, error) {
	const name = "mhc.Cast"
	in, err := describeAll(named{"x", x})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	out := in[0]
	out.Name, out.Dtype = "to", to
	if err := cmp.Or(wantStorage(in[0]), wantStorage(out)); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	from := in[0].Dtype
	if from == to {
		return x, nil
	}
	return firstOutput(describe(fused.Operator{
		Name:     name,
		Settings: []fused.Setting{{Name: "to", Value: to}},
		Inputs:   in,
		Outputs:  []fused.Operand{out},
	}, func(o Operators, in []tensor.Tensor) ([]tensor.Tensor, error) {
		return results(o.Cast(in[0], to))
	}, func(o Operators, t fused.Tape) ([]tensor.Tensor, error) {
		return results(o.Cast(t.Up[0], from))
	}), x)
}
