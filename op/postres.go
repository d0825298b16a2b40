package op

import (
	"cmp"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/op/fused"
)

// PostRes mixes the streams and writes a layer's output f to them (arXiv
// 2512.24880, eq. 3):
//
//	out[o,c] = sum_i hres[o,i] x[i,c] + hpost[o] f[c]
//
// With mhc.ApplyTransposed, hres[i,o] stands for hres[o,i]. x and the result are
// [..., n, C], f is [..., C] of x's dtype (float32, float64, BFloat16 or Float16),
// hpost is [..., n] and hres [..., n, n], float64 with a float64 x and else
// float32. One backward computes the gradients of all four operands.
//
// It returns an error if the nodes are nil, of different graphs, one and the same,
// or of the wrong shape or dtype.
func PostRes(x, f, hpost, hres *gorgonia.Node, apply mhc.Apply) (*gorgonia.Node, error) {
	return first(construct("mhc.PostRes", func(in []fused.Operand) (*fused.Operator, error) { return postResOperator(in, apply) },
		named{"x", x}, named{"f", f}, named{"hpost", hpost}, named{"hres", hres}))
}

func postResOperator(in []fused.Operand, apply mhc.Apply) (*fused.Operator, error) {
	x, f, hpost, hres := in[0], in[1], in[2], in[3]
	lead, n, channels, err := wantStreams(x)
	if err != nil {
		return nil, err
	}
	if apply != mhc.ApplyRows && apply != mhc.ApplyTransposed {
		return nil, fmt.Errorf("apply is %v, want rows or transposed", apply)
	}
	why := fmt.Sprintf("x has shape %v", x.Shape)
	if err := cmp.Or(
		wantShape(f, why, shapeOf(lead, channels)...),
		wantDtype(f, where(x), x.Dtype),
		wantShape(hpost, why, shapeOf(lead, n)...),
		wantCoefficient(hpost, x),
		wantShape(hres, why, shapeOf(lead, n, n)...),
		wantCoefficient(hres, x),
	); err != nil {
		return nil, err
	}
	return computed(fused.Operator{
		Settings:       []fused.Setting{{Name: "apply", Value: apply}},
		Outputs:        []fused.Operand{{Name: "out", Dtype: x.Dtype, Shape: x.Shape}},
		BackwardInputs: []int{0, 1, 2, 3},
	}, func(o Operators, in []tensor.Tensor) ([]tensor.Tensor, error) {
		return results(o.PostRes(postResInputsOf(in), apply))
	}, func(o Operators, t fused.Tape) ([]tensor.Tensor, error) {
		g, err := o.PostResBackward(postResInputsOf(t.In), t.Up[0], apply)
		return []tensor.Tensor{g.X, g.F, g.HPost, g.HRes}, err
	}), nil
}

func postResInputsOf(ts []tensor.Tensor) PostResInputs {
	return PostResInputs{X: ts[0], F: ts[1], HPost: ts[2], HRes: ts[3]}
}
