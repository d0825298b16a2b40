package op

import (
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/op/fused"
)

// named is an operand's node and the name that errors call it.
type named struct {
	name string
	node *gorgonia.Node
}

// construct applies an operator to nodes. operator checks the operands and
// describes all of the operator but its name and inputs.
func construct(name string, operator func(in []fused.Operand) (*fused.Operator, error), operands ...named) (*fused.Applied, error) {
	nodes, in := make(gorgonia.Nodes, len(operands)), make([]fused.Operand, len(operands))
	for i, o := range operands {
		var err error
		if in[i], err = fused.OperandOf(o.name, o.node); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		nodes[i] = o.node
	}
	o, err := operator(in)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	o.Name, o.Inputs, o.Sum = name, in, addAll
	return o.Apply(nodes...)
}

// first is the node of an operator's first output.
func first(a *fused.Applied, err error) (*gorgonia.Node, error) {
	if err != nil {
		return nil, err
	}
	return a.Output(0)
}

// computed completes an operator with its computations, methods of Operators.
func computed(o fused.Operator, forward func(o Operators, in []tensor.Tensor) ([]tensor.Tensor, error), backward func(Operators, fused.Tape) ([]tensor.Tensor, error)) *fused.Operator {
	o.Forward = func(in []tensor.Tensor) ([]tensor.Tensor, error) {
		return compute(in, func(ops Operators) ([]tensor.Tensor, error) { return forward(ops, in) })
	}
	o.Backward = func(t fused.Tape) ([]tensor.Tensor, error) {
		read := slices.DeleteFunc(slices.Concat(t.In, t.Out, t.Up), func(t tensor.Tensor) bool { return t == nil })
		return compute(read, func(ops Operators) ([]tensor.Tensor, error) { return backward(ops, t) })
	}
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
