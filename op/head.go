package op

import (
	"cmp"

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
	return first(construct("mhc.Head", func(in []fused.Operand) (*fused.Operator, error) { return headOperator(in, cfg) },
		named{"x", x}, named{"phi", phi}, named{"b", b}, named{"alpha", alpha}))
}

func headOperator(in []fused.Operand, cfg mhc.HeadConfig) (*fused.Operator, error) {
	x, phi, b, alpha := in[0], in[1], in[2], in[3]
	lead, n, channels, err := wantStreams(x)
	if err := cmp.Or(err, cfg.Validate()); err != nil {
		return nil, err
	}
	if err := cmp.Or(
		wantPhi(phi, x, n*channels, n, cfg.Phi),
		wantShape(b, "one number a stream", n),
		wantCoefficient(b, x),
		wantShape(alpha, "one number", 1),
		wantCoefficient(alpha, x),
	); err != nil {
		return nil, err
	}
	return computed(fused.Operator{
		Settings: []fused.Setting{
			{Name: "rms_eps", Value: cfg.RMSEps},
			{Name: "pre_eps", Value: cfg.PreEps},
			{Name: "phi", Value: cfg.Phi},
		},
		Outputs: []fused.Operand{
			{Name: "out", Dtype: x.Dtype, Shape: shapeOf(lead, channels)},
			{Name: "mix", Dtype: b.Dtype, Shape: shapeOf(lead, n)},
			{Name: "r", Dtype: b.Dtype, Shape: shapeOf(lead)},
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
	}), nil
}

func headInputsOf(ts []tensor.Tensor) HeadInputs {
	return HeadInputs{X: ts[0], Phi: ts[1], B: ts[2], Alpha: ts[3]}
}
