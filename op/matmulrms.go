package op

import (
	"cmp"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/op/fused"
)

// MatMulRMS multiplies tokens by a matrix and divides the product by the root
// mean square of the token (arXiv 2512.24880, eq. 14-15):
//
//	mix = (x phi) / sqrt(mean(x^2) + RMSEps)       [..., M]
//
// phi is [K, M], or [M, K] where cfg.Phi says so. x is [..., K], or [..., n, C]
// with K = n*C; it is read as the former where its last dimension is K. x is
// float32, float64, BFloat16 or Float16; phi has x's dtype or that of mix, which
// is float64 with a float64 x and else float32. One backward computes both
// gradients.
//
// It returns an error if the nodes are nil, of different graphs, one and the same,
// or of the wrong shape or dtype, and if cfg is out of range.
func MatMulRMS(x, phi *gorgonia.Node, cfg MatMulRMSConfig) (*gorgonia.Node, error) {
	return first(construct("mhc.MatMulRMS", func(in []fused.Operand) (*fused.Operator, error) { return matMulRMSOperator(in, cfg) },
		named{"x", x}, named{"phi", phi}))
}

func matMulRMSOperator(in []fused.Operand, cfg MatMulRMSConfig) (*fused.Operator, error) {
	x, phi := in[0], in[1]
	settings := mhc.HeadConfig{RMSEps: cfg.RMSEps, Phi: cfg.Phi} // a head has these and one more
	if err := cmp.Or(settings.Validate(), wantStorage(x), wantMatrix(phi)); err != nil {
		return nil, err
	}
	lead, d := matMulDims(x.Shape, phi.Shape, cfg)
	if d.Tokens*d.K != x.Shape.TotalSize() {
		return nil, fmt.Errorf("x has shape %v, want [..., K] or [..., n, C] with n*C = K = %d: phi has shape %v, layout %v", x.Shape, d.K, phi.Shape, cfg.Phi)
	}
	if err := wantPhi(phi, x, d.K, d.M, cfg.Phi); err != nil {
		return nil, err
	}
	a := arithmetic(x.Dtype)
	return computed(fused.Operator{
		Settings: []fused.Setting{{Name: "rms_eps", Value: cfg.RMSEps}, {Name: "phi", Value: cfg.Phi}},
		Outputs: []fused.Operand{
			{Name: "mix", Dtype: a, Shape: shapeOf(lead, d.M)},
			{Name: "r", Dtype: a, Shape: shapeOf(lead)},
		},
		BackwardInputs:  []int{0, 1},
		BackwardOutputs: []int{0, 1},
	}, func(o Operators, in []tensor.Tensor) ([]tensor.Tensor, error) {
		mix, r, err := o.MatMulRMS(in[0], in[1], cfg)
		return []tensor.Tensor{mix, r}, err
	}, func(o Operators, t fused.Tape) ([]tensor.Tensor, error) {
		dx, dphi, err := o.MatMulRMSBackward(t.In[0], t.In[1], t.Out[0], t.Out[1], t.Up[0], cfg)
		return []tensor.Tensor{dx, dphi}, err
	}), nil
}

func wantMatrix(o fused.Operand) error {
	if len(o.Shape) != 2 {
		return fmt.Errorf("%s has shape %v, want a matrix", o.Name, o.Shape)
	}
	return nil
}
