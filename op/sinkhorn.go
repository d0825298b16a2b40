package op

import (
	"cmp"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/op/fused"
	"github.com/mhc-go/mhc/sinkhorn"
)

// Sinkhorn projects every matrix of logits [..., n, n], float32 or float64, to a
// doubly stochastic one by cfg.Iterations iterations (arXiv 2512.24880, eq. 9). The
// gradient is that of these iterations, exactly.
//
// It returns an error if the node is nil or of the wrong shape or dtype, and if
// cfg is not valid.
func Sinkhorn(logits *gorgonia.Node, cfg sinkhorn.Config) (*gorgonia.Node, error) {
	return first(construct("mhc.Sinkhorn", func(in []fused.Operand) (*fused.Operator, error) { return sinkhornOperator(in[0], cfg) },
		named{"logits", logits}))
}

func sinkhornOperator(logits fused.Operand, cfg sinkhorn.Config) (*fused.Operator, error) {
	if err := cmp.Or(cfg.Validate(), wantDtype(logits, "", tensor.Float32, tensor.Float64), wantSquare(logits)); err != nil {
		return nil, err
	}
	return computed(fused.Operator{
		Settings:       sinkhornSettings(cfg),
		Outputs:        []fused.Operand{{Name: "p", Dtype: logits.Dtype, Shape: logits.Shape}},
		BackwardInputs: []int{0},
	}, func(o Operators, in []tensor.Tensor) ([]tensor.Tensor, error) {
		return results(o.Sinkhorn(in[0], cfg))
	}, func(o Operators, t fused.Tape) ([]tensor.Tensor, error) {
		return results(o.SinkhornBackward(t.In[0], t.Up[0], cfg))
	}), nil
}

func wantSquare(o fused.Operand) error {
	if d := len(o.Shape); d < 2 || o.Shape[d-2] != o.Shape[d-1] {
		return fmt.Errorf("%s has shape %v, want [..., n, n]", o.Name, o.Shape)
	}
	return nil
}
