package bench

import (
	"fmt"
	"hash"
	"hash/fnv"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// upstream is an operator that stands for what comes after the outputs under
// test: a scalar of them and of as many tensors, whose gradients by the outputs
// are those tensors. It costs nothing in either direction.
type upstream struct {
	operands []tensor.Tensor // the outputs' gradients
	dtype    tensor.Dtype    // of the scalar
}

func (u upstream) Arity() int { return 2 * len(u.operands) }

func (u upstream) Type() hm.Type {
	var types []hm.Type
	for range 2 {
		for _, t := range u.operands {
			types = append(types, gorgonia.TensorType{Dims: t.Dims(), Of: t.Dtype()})
		}
	}
	return hm.NewFnType(append(types, u.dtype)...)
}

func (upstream) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	return tensor.ScalarShape(), nil
}

func (u upstream) Do(...gorgonia.Value) (gorgonia.Value, error) {
	if u.dtype == tensor.Float64 {
		return gorgonia.NewF64(0), nil
	}
	return gorgonia.NewF32(0), nil
}

func (upstream) ReturnsPtr() bool     { return false }
func (upstream) CallsExtern() bool    { return false }
func (upstream) OverwritesInput() int { return -1 }
func (upstream) String() string       { return "upstream" }

func (u upstream) WriteHash(h hash.Hash) { fmt.Fprintf(h, "%v %d", u, u.Arity()) }

func (u upstream) Hashcode() uint32 {
	h := fnv.New32a()
	u.WriteHash(h)
	return h.Sum32()
}

func (u upstream) DiffWRT(inputs int) []bool {
	wrt := make([]bool, inputs)
	for i := range inputs / 2 {
		wrt[i] = true
	}
	return wrt
}

// SymDiff hands out the tensors.
func (u upstream) SymDiff(inputs gorgonia.Nodes, _, _ *gorgonia.Node) (gorgonia.Nodes, error) {
	grads := make(gorgonia.Nodes, len(inputs))
	copy(grads, inputs[len(inputs)/2:])
	return grads, nil
}
