package op

import (
	"cmp"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/op/fused"
)

// Head is the way out of a stack of layers, a Pre with coefficients of its own:
//
//	w[i]   = sigmoid(alpha[0] * (x phi)[i] / sqrt(mean(x^2) + RMSEps) + b[i]) + PreEps
//	out[c] = sum_i w[i] x[i,c]
//
// x is [..., n, C] and the result [..., C] of x's dtype; phi is [K, n] with K =
// n*C, or [n, K] where cfg.Phi says so; b is [n]; alpha is [1]. Dtypes are as in
// [Coeffs]. One backward computes the gradients of all four operands.
//
// It returns an error if the nodes are nil, of different graphs, one and the same,
// or of the wrong shape or dtype, and if cfg is not valid.
func Head(x, phi, b, alpha *gorgonia.Node, cfg mhc.HeadConfig) (*gorgonia.Node, error) {
	const name = "mhc.Head"
	in, err := describeAll(named{"x", x}, named{"phi", phi}, named{"b", b}, named{"alpha", alpha})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	lead, n, channels, err := wantStreams(in[0])
	if err := cmp.Or(err, cfg.Validate()); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := cmp.Or(
		wantPhi(in[1], in[0], n*channels, n, cfg.Phi),
		wantShape(in[2], "one number a stream", n),
		wantCoefficient(in[2], in[0]),
		wantShape(in[3], "one number", 1),
		wantCoefficient(in[3], in[0]),
	); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	a := in[2].Dtype
	return firstOutput(describe(fused.Operator{
		Name: name,
		Settings: []fused.Setting{
			{Name: "rms_eps", Value: cfg.RMSEps},
			{Name: "pre_eps", Value: cfg.PreEps},
			{Name: "phi", Value: cfg.Phi},
		},
		Inputs: in,
		Outputs: []fused.Operand{
			{Name: "out", Dtype: in[0].Dtype, Shape: shapeOf(lead, channels)},
			{Name: "mix", Dtype: a, Shape: shapeOf(lead, n)},
			{Name: "r", Dtype: a, Shape: shapeOf(lead)},
		},
		BackwardInputs:  []int{0, 1, 2, 3},
		BackwardOutputs: []int{1, 2},
	}, func(o Operators, in []tensor.Tensor) ([]tensor.Tensor, error) {
		out, err := o.Head(headInputsOf(in), cfg)
		return []tensor.Tensor{out.Out, out.Mix, out.R}, err
	}, func(o Operators, t fused.Tape) ([]tensor.Tensor, error) {
		kept := HeadOutputs{Mix: t.Out[1], R: t.Out[2]}
		g, err := o.HeadBackward(headInputsOf(t.In), kept, t.Up[0], cfg)
		return []tensor.Tensor{g.X, g.Phi, g.B, g.Alpha}, err
	}), x, phi, b, alpha)
}

func headInputsOf(ts []tensor.Tensor) HeadInputs {
	return HeadInputs{X: ts[0], Phi: ts[1], B: ts[2], Alpha: ts[3]}
}
