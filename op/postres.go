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
	const name = "mhc.PostRes"
	in, err := describeAll(named{"x", x}, named{"f", f}, named{"hpost", hpost}, named{"hres", hres})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	lead, n, channels, err := wantStreams(in[0])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if apply != mhc.ApplyRows && apply != mhc.ApplyTransposed {
		return nil, fmt.Errorf("%s: apply is %v, want rows or transposed", name, apply)
	}
	why := fmt.Sprintf("x has shape %v", in[0].Shape)
	if err := cmp.Or(
		wantShape(in[1], why, shapeOf(lead, channels)...),
		wantDtype(in[1], where(in[0]), in[0].Dtype),
		wantShape(in[2], why, shapeOf(lead, n)...),
		wantCoefficient(in[2], in[0]),
		wantShape(in[3], why, shapeOf(lead, n, n)...),
		wantCoefficient(in[3], in[0]),
	); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	out := in[0]
	out.Name = "out"
	return firstOutput(describe(fused.Operator{
		Name:           name,
		Settings:       []fused.Setting{{Name: "apply", Value: apply}},
		Inputs:         in,
		Outputs:        []fused.Operand{out},
		BackwardInputs: []int{0, 1, 2, 3},
	}, func(o Operators, in []tensor.Tensor) ([]tensor.Tensor, error) {
		return results(o.PostRes(postResInputsOf(in), apply))
	}, func(o Operators, t fused.Tape) ([]tensor.Tensor, error) {
		g, err := o.PostResBackward(postResInputsOf(t.In), t.Up[0], apply)
		return []tensor.Tensor{g.X, g.F, g.HPost, g.HRes}, err
	}), x, f, hpost, hres)
}

func postResInputsOf(ts []tensor.Tensor) PostResInputs {
	return PostResInputs{X: ts[0], F: ts[1], HPost: ts[2], HRes: ts[3]}
}
