package op

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/op/fused"
)

// Streams is the way into a stack of layers: it copies x [..., C] to n streams,
// [..., n, C] of x's dtype (float32, float64, BFloat16 or Float16). Its gradient is
// the sum over the streams.
//
// It returns an error if the node is nil, a scalar or of another dtype, and if n
// is not positive.
func Streams(x *gorgonia.Node, n int) (*gorgonia.Node, error) {
	const name = "mhc.Streams"
	in, err := describeAll(named{"x", x})
	if err == nil && n < 1 {
		err = fmt.Errorf("n is %d, want 1 or more", n)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := wantStorage(in[0]); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	lead, last := splitLast(in[0].Shape, 1)
	return firstOutput(describe(fused.Operator{
		Name:     name,
		Settings: []fused.Setting{{Name: "n", Value: n}},
		Inputs:   in,
		Outputs:  []fused.Operand{{Name: "out", Dtype: in[0].Dtype, Shape: shapeOf(lead, n, last[0])}},
	}, func(o Operators, in []tensor.Tensor) ([]tensor.Tensor, error) {
		return results(o.Streams(in[0], n))
	}, func(o Operators, t fused.Tape) ([]tensor.Tensor, error) {
		return results(o.StreamsBackward(t.Up[0]))
	}), x)
}
