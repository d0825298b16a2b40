package op

import (
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/op/fused"
)

// describe completes an operator with its computations, methods of Operators.
func describe(o fused.Operator, forward func(o Operators, in []tensor.Tensor) ([]tensor.Tensor, error), backward func(Operators, fused.Tape) ([]tensor.Tensor, error)) *fused.Operator {
	o.Forward = func(in []tensor.Tensor) ([]tensor.Tensor, error) {
		return compute(in, func(ops Operators) ([]tensor.Tensor, error) { return forward(ops, in) })
	}
	o.Backward = func(t fused.Tape) ([]tensor.Tensor, error) {
		read := slices.DeleteFunc(slices.Concat(t.In, t.Out, t.Up), func(t tensor.Tensor) bool { return t == nil })
		return compute(read, func(ops Operators) ([]tensor.Tensor, error) { return backward(ops, t) })
	}
	o.Sum = addAll
	return &o
}

func addAll(terms ...tensor.Tensor) (tensor.Tensor, error) {
	out, err := compute(terms, func(ops Operators) ([]tensor.Tensor, error) { return results(ops.AddAll(terms...)) })
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// results is what a method of Operators with one result returns, as a slice.
func results(t tensor.Tensor, err error) ([]tensor.Tensor, error) { return []tensor.Tensor{t}, err }

// firstOutput applies an operator to nodes and returns its first output.
func firstOutput(o *fused.Operator, nodes ...*gorgonia.Node) (*gorgonia.Node, error) {
	a, err := o.Apply(nodes...)
	if err != nil {
		return nil, err
	}
	return a.Output(0)
}
