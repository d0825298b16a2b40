package op

import (
	"cmp"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/op/fused"
	"github.com/mhc-go/mhc/sinkhorn"
)

// Coefficients are the outputs of [Coeffs]. A node is made when it is first asked
// for, since an output that nothing uses is a root of the graph, which
// LispMachine refuses; so ask only for what is used.
type Coefficients struct{ applied *fused.Applied }

// Pre is h_pre [..., n], the weights with which a layer reads the streams.
func (c *Coefficients) Pre() (*gorgonia.Node, error) { return c.applied.Output(0) }

// Post is h_post [..., n], the weights with which a layer writes them.
func (c *Coefficients) Post() (*gorgonia.Node, error) { return c.applied.Output(1) }

// Res is h_res [..., n, n], row-major, which mixes them.
func (c *Coefficients) Res() (*gorgonia.Node, error) { return c.applied.Output(2) }

// Coeffs computes the coefficients of one layer from the streams x (arXiv
// 2512.24880, eq. 7-9 and 14-19):
//
//	r      = 1 / sqrt(mean(x^2) + RMSEps)      x is the token's K = n*C numbers
//	mix    = r * (x phi)                       M = n + n + n*n columns
//	h_pre  = sigmoid(alpha[0] * mix + b) + PreEps
//	h_post = PostMult * sigmoid(alpha[1] * mix + b)
//	h_res  = Sinkhorn(alpha[2] * mix + b)
//
// x is [..., n, C]; phi is [K, M], or [M, K] where cfg.Phi says so; b is [M];
// alpha is [3]. x is float32, float64, BFloat16 or Float16; phi has x's dtype or
// that of the arithmetic, which is float64 with a float64 x and else float32; b,
// alpha and the coefficients have that of the arithmetic.
//
// One backward computes the gradients of all four operands from those of the
// outputs that are used, exactly: the Sinkhorn iterations are reversed one by one.
// cfg.Apply has no part in it; give it to [PostRes].
//
// It returns an error if the nodes are nil, of different graphs, one and the same,
// or of the wrong shape or dtype, and if cfg is not valid.
func Coeffs(x, phi, b, alpha *gorgonia.Node, cfg mhc.Config) (*Coefficients, error) {
	a, err := construct("mhc.Coeffs", func(in []fused.Operand) (*fused.Operator, error) { return coeffsOperator(in, cfg) },
		named{"x", x}, named{"phi", phi}, named{"b", b}, named{"alpha", alpha})
	if err != nil {
		return nil, err
	}
	return &Coefficients{a}, nil
}

func coeffsOperator(in []fused.Operand, cfg mhc.Config) (*fused.Operator, error) {
	x, phi, b, alpha := in[0], in[1], in[2], in[3]
	lead, n, channels, err := wantStreams(x)
	if err := cmp.Or(err, cfg.Validate()); err != nil {
		return nil, err
	}
	m := cfg.Width()
	if err := cmp.Or(
		wantShape(x, fmt.Sprintf("the settings say n = %d streams", cfg.Streams), shapeOf(lead, cfg.Streams, channels)...),
		wantPhi(phi, x, n*channels, m, cfg.Phi),
		wantShape(b, fmt.Sprintf("M = n*n + 2*n, n = %d streams", n), m),
		wantCoefficient(b, x),
		wantShape(alpha, "one number for each of pre, post and res", 3),
		wantCoefficient(alpha, x),
	); err != nil {
		return nil, err
	}
	return computed(fused.Operator{
		Settings: append([]fused.Setting{
			{Name: "n", Value: n},
			{Name: "rms_eps", Value: cfg.RMSEps},
			{Name: "pre_eps", Value: cfg.PreEps},
			{Name: "post_mult", Value: cfg.PostMult},
			{Name: "phi", Value: cfg.Phi},
		}, sinkhornSettings(cfg.Sinkhorn)...),
		Outputs: []fused.Operand{
			{Name: "pre", Dtype: b.Dtype, Shape: shapeOf(lead, n)},
			{Name: "post", Dtype: b.Dtype, Shape: shapeOf(lead, n)},
			{Name: "res", Dtype: b.Dtype, Shape: shapeOf(lead, n, n)},
			{Name: "mix", Dtype: b.Dtype, Shape: shapeOf(lead, m)},
			{Name: "r", Dtype: b.Dtype, Shape: shapeOf(lead)},
		},
		BackwardInputs:  []int{0, 1, 2, 3},
		BackwardOutputs: []int{3, 4},
	}, func(o Operators, in []tensor.Tensor) ([]tensor.Tensor, error) {
		out, err := o.Coeffs(coeffsInputsOf(in), cfg)
		return []tensor.Tensor{out.Pre, out.Post, out.Res, out.Mix, out.R}, err
	}, func(o Operators, t fused.Tape) ([]tensor.Tensor, error) {
		kept := CoeffsOutputs{Mix: t.Out[3], R: t.Out[4]}
		up := CoeffsUpstream{Pre: t.Up[0], Post: t.Up[1], Res: t.Up[2]}
		g, err := o.CoeffsBackward(coeffsInputsOf(t.In), kept, up, cfg)
		return []tensor.Tensor{g.X, g.Phi, g.B, g.Alpha}, err
	}), nil
}

func coeffsInputsOf(ts []tensor.Tensor) CoeffsInputs {
	return CoeffsInputs{X: ts[0], Phi: ts[1], B: ts[2], Alpha: ts[3]}
}

func sinkhornSettings(cfg sinkhorn.Config) []fused.Setting {
	return []fused.Setting{
		{Name: "T", Value: cfg.Iterations},
		{Name: "start", Value: cfg.Start},
		{Name: "end", Value: cfg.End},
		{Name: "sinkhorn_eps", Value: cfg.Eps},
	}
}
