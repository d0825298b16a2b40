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
	const name = "mhc.Sinkhorn"
	in, err := describeAll(named{"logits", logits})
	if err := cmp.Or(err, cfg.Validate()); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := cmp.Or(wantDtype(in[0], "", tensor.Float32, tensor.Float64), wantSquare(in[0])); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	out := in[0]
	out.Name = "p"
	return firstOutput(describe(fused.Operator{
		Name:           name,
		Settings:       sinkhornSettings(cfg),
		Inputs:         in,
		Outputs:        []fused.Operand{out},
		BackwardInputs: []int{0},
	}, func(o Operators, in []tensor.Tensor) ([]tensor.Tensor, error) {
		return results(o.Sinkhorn(in[0], cfg))
	}, func(o Operators, t fused.Tape) ([]tensor.Tensor, error) {
		return results(o.SinkhornBackward(t.In[0], t.Up[0], cfg))
	}), logits)
}

func wantSquare(o fused.Operand) error {
	if d := len(o.Shape); d < 2 || o.Shape[d-2] != o.Shape[d-1] {
		return fmt.Errorf("%s has shape %v, want [..., n, n]", o.Name, o.Shape)
	}
	return nil
}
