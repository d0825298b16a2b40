package fused

import (
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// uses is the number of outputs of one fork.
const uses = 8

// fork returns a node of n's value that is one use more of n. Where a node of a
// dtype that the built-in Add does not know had several uses, Grad would add
// their gradients with Add; here n has one use, the fork, whose backward is sum.
// All tensors of a fork are n's, which is safe as no built-in operator computes
// with such a dtype, and so none writes into them.
func fork(n *gorgonia.Node, sum func(terms ...tensor.Tensor) (tensor.Tensor, error)) (*gorgonia.Node, error) {
	x, err := OperandOf("x", n)
	if err != nil {
		return nil, err
	}
	f := &Operator{
		Name:    "fork",
		Inputs:  []Operand{x},
		Outputs: make([]Operand, uses),
		Forward: func(in []tensor.Tensor) ([]tensor.Tensor, error) {
			out := make([]tensor.Tensor, uses)
			for i := range out {
				out[i] = in[0]
			}
			return out, nil
		},
		Backward: func(t Tape) ([]tensor.Tensor, error) {
			var terms []tensor.Tensor
			for _, g := range t.Up {
				if g != nil {
					terms = append(terms, g)
				}
			}
			switch len(terms) {
			case 0:
				return nil, errors.New("no output has a gradient")
			case 1:
				return terms, nil
			}
			s, err := sum(terms...)
			return []tensor.Tensor{s}, err
		},
		Sum: sum,
	}
	for i := range f.Outputs {
		f.Outputs[i] = x
		f.Outputs[i].Name = fmt.Sprintf("use%d", i)
	}
	bundle, err := gorgonia.ApplyOp(forward{Operator: f}, n)
	if err != nil {
		return nil, err
	}
	taken := bundle.Graph().To(bundle.ID()).Len()
	if taken < uses-1 {
		return outputNode(f, taken, bundle)
	}
	rest, err := outputNode(f, uses-1, bundle)
	if err != nil {
		return nil, err
	}
	return fork(rest, sum)
}

// addable says whether the built-in Add knows a dtype: it knows Go's own.
func addable(t tensor.Dtype) bool { return t.PkgPath() == "" }
