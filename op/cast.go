package op

import (
	"cmp"

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
	a, err := construct("mhc.Cast", func(in []fused.Operand) (*fused.Operator, error) { return castOperator(in[0], to) }, named{"x", x})
	if err == nil && x.Dtype() == to {
		return x, nil
	}
	return first(a, err)
}

func castOperator(x fused.Operand, to tensor.Dtype) (*fused.Operator, error) {
	out := fused.Operand{Name: "to", Dtype: to, Shape: x.Shape}
	if err := cmp.Or(wantStorage(x), wantStorage(out)); err != nil {
		return nil, err
	}
	return computed(fused.Operator{
		Settings: []fused.Setting{{Name: "to", Value: to}},
		Outputs:  []fused.Operand{out},
	}, func(o Operators, in []tensor.Tensor) ([]tensor.Tensor, error) {
		return results(o.Cast(in[0], to))
	}, func(o Operators, t fused.Tape) ([]tensor.Tensor, error) {
		return results(o.Cast(t.Up[0], x.Dtype))
	}), nil
}
