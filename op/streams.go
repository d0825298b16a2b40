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
	return first(construct("mhc.Streams", func(in []fused.Operand) (*fused.Operator, error) { return streamsOperator(in[0], n) },
		named{"x", x}))
}

func streamsOperator(x fused.Operand, n int) (*fused.Operator, error) {
	if n < 1 {
		return nil, fmt.Errorf("n is %d, want 1 or more", n)
	}
	if err := wantStorage(x); err != nil {
		return nil, err
	}
	lead, last := splitLast(x.Shape, 1)
	return computed(fused.Operator{
		Settings: []fused.Setting{{Name: "n", Value: n}},
		Outputs:  []fused.Operand{{Name: "out", Dtype: x.Dtype, Shape: shapeOf(lead, n, last[0])}},
	}, func(o Operators, in []tensor.Tensor) ([]tensor.Tensor, error) {
		return results(o.Streams(in[0], n))
	}, func(o Operators, t fused.Tape) ([]tensor.Tensor, error) {
		return results(o.StreamsBackward(t.Up[0]))
	}), nil
}
