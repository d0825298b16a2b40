package op

import (
	"cmp"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/op/fused"
)

// Pre reads the streams: out[c] = sum_i hpre[i] x[i,c], [..., C] of x's dtype
// (arXiv 2512.24880, eq. 3: the layer's input H_pre x). x is [..., n, C],
// float32, float64, BFloat16 or Float16; hpre is [..., n], float64 with a float64
// x and else float32. One backward computes both gradients.
//
// It returns an error if the nodes are nil, of different graphs, one and the same,
// or of the wrong shape or dtype.
func Pre(x, hpre *gorgonia.Node) (*gorgonia.Node, error) {
	return first(construct("mhc.Pre", preOperator, named{"x", x}, named{"hpre", hpre}))
}

func preOperator(in []fused.Operand) (*fused.Operator, error) {
	x, hpre := in[0], in[1]
	lead, n, channels, err := wantStreams(x)
	if err != nil {
		return nil, err
	}
	if err := cmp.Or(
		wantShape(hpre, fmt.Sprintf("x has shape %v", x.Shape), shapeOf(lead, n)...),
		wantCoefficient(hpre, x),
	); err != nil {
		return nil, err
	}
	return computed(fused.Operator{
		Outputs:        []fused.Operand{{Name: "out", Dtype: x.Dtype, Shape: shapeOf(lead, channels)}},
		BackwardInputs: []int{0, 1},
	}, func(o Operators, in []tensor.Tensor) ([]tensor.Tensor, error) {
		return results(o.Pre(in[0], in[1]))
	}, func(o Operators, t fused.Tape) ([]tensor.Tensor, error) {
		dx, dhpre, err := o.PreBackward(t.In[0], t.In[1], t.Up[0])
		return []tensor.Tensor{dx, dhpre}, err
	}), nil
}
