package fused

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Operator describes an operator. It must not change once it is applied.
type Operator struct {
	// Name is what graphs and errors call the operator, mhc.Coeffs say.
	Name string
	// Settings are the parameters, in the order in which they are shown. Two
	// operators of equal Name, Settings and Inputs compute the same thing: on the
	// same nodes Gorgonia makes them one node.
	Settings []Setting
	// Inputs and Outputs are the operands and results.
	Inputs, Outputs []Operand

	// Forward computes the outputs. It may neither write its inputs nor keep
	// them, and returns fresh tensors.
	Forward func(in []tensor.Tensor) (out []tensor.Tensor, err error)
	// Backward computes the gradients of all inputs, in their shapes and dtypes.
	Backward func(Tape) (grads []tensor.Tensor, err error)
	// BackwardInputs and BackwardOutputs are the indices of the inputs and outputs
	// that Backward reads.
	BackwardInputs, BackwardOutputs []int

	// Sum adds tensors of a dtype that the built-in Add does not know, one defined
	// outside of Go's own types; nil where no input has such a dtype. A node of
	// that kind can then have any number of uses.
	Sum func(terms ...tensor.Tensor) (tensor.Tensor, error)
}

// Operand is the name, dtype and shape of an operand or a result.
type Operand struct {
	Name  string
	Dtype tensor.Dtype
	Shape tensor.Shape
}

// Tape holds what a Backward reads. Each slice has the length of the operator's
// inputs or outputs.
type Tape struct {
	In  []tensor.Tensor // operands; nil but for BackwardInputs
	Out []tensor.Tensor // results; nil but for BackwardOutputs
	Up  []tensor.Tensor // gradients of the loss by the results; nil where a result is not used
}

// Setting is a parameter of an operator.
type Setting struct {
	Name  string
	Value any // its %v tells it from every other value
}

// Described is an operator of a graph (gorgonia.Node.Op) that tells its settings.
// The operators of this package do, those of backward nodes included.
type Described interface {
	gorgonia.Op
	Settings() []Setting
}

func (o *Operator) String() string {
	if len(o.Settings) == 0 {
		return o.Name
	}
	parts := make([]string, len(o.Settings))
	for i, s := range o.Settings {
		parts[i] = fmt.Sprintf("%s=%v", s.Name, s.Value)
	}
	return o.Name + "{" + strings.Join(parts, " ") + "}"
}

// OperandOf describes a node that is to be the operand of that name. It returns
// an error for a nil node and for one that is no tensor: it has no dimensions, or
// one of them is zero, which Gorgonia cannot hold.
func OperandOf(name string, n *gorgonia.Node) (Operand, error) {
	if n == nil {
		return Operand{}, fmt.Errorf("%s is a nil node", name)
	}
	shape := n.Shape()
	if len(shape) == 0 {
		return Operand{}, fmt.Errorf("%s (%s) is a scalar, want a tensor", name, n.Name())
	}
	if slices.Contains(shape, 0) {
		return Operand{}, fmt.Errorf("%s (%s) has shape %v: a Gorgonia tensor cannot be empty", name, n.Name(), shape)
	}
	return Operand{Name: name, Dtype: n.Dtype(), Shape: shape}, nil
}

// Applied is an operator applied to nodes. Its output nodes are made when they
// are asked for: an output that nothing uses would be a root of the graph, which
// LispMachine refuses.
type Applied struct {
	op      *Operator
	inputs  gorgonia.Nodes
	bundle  *gorgonia.Node // nil until an output is asked for
	outputs []*gorgonia.Node
}

// Apply applies the operator to nodes of one graph, in the order of Inputs. No
// node is made until an output is asked for.
func (o *Operator) Apply(inputs ...*gorgonia.Node) (*Applied, error) {
	if err := o.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", o.Name, err)
	}
	if len(inputs) != len(o.Inputs) {
		return nil, fmt.Errorf("%s: got %d nodes, want %d", o.Name, len(inputs), len(o.Inputs))
	}
	for i, n := range inputs {
		want := o.Inputs[i]
		got, err := OperandOf(want.Name, n)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", o.Name, err)
		case !got.Shape.Eq(want.Shape) || got.Dtype != want.Dtype:
			return nil, fmt.Errorf("%s: %s is %v %v, want %v %v", o.Name, want.Name, got.Dtype, got.Shape, want.Dtype, want.Shape)
		case n.Graph() == nil || n.Graph() != inputs[0].Graph():
			return nil, fmt.Errorf("%s: %s (%s) and %s (%s) are nodes of different graphs", o.Name, o.Inputs[0].Name, inputs[0].Name(), want.Name, n.Name())
		}
		if j := slices.Index(inputs[:i], n); j >= 0 {
			return nil, fmt.Errorf("%s: %s and %s are one node (%s): Gorgonia merges input nodes of equal name, type and shape, so give each its own name", o.Name, o.Inputs[j].Name, want.Name, n.Name())
		}
	}
	return &Applied{op: o, inputs: slices.Clone(inputs), outputs: make([]*gorgonia.Node, len(o.Outputs))}, nil
}

// validate returns an error that names the first fault of the description.
func (o *Operator) validate() error {
	switch {
	case o.Forward == nil:
		return errors.New("has no Forward")
	case o.Backward == nil:
		return errors.New("has no Backward")
	}
	outside := func(indices []int, n int) bool {
		return slices.ContainsFunc(indices, func(i int) bool { return i < 0 || i >= n })
	}
	if outside(o.BackwardInputs, len(o.Inputs)) {
		return fmt.Errorf("BackwardInputs is %v, want indices of %d inputs", o.BackwardInputs, len(o.Inputs))
	}
	if outside(o.BackwardOutputs, len(o.Outputs)) {
		return fmt.Errorf("BackwardOutputs is %v, want indices of %d outputs", o.BackwardOutputs, len(o.Outputs))
	}
	for i, in := range o.Inputs {
		if o.Sum == nil && !addable(in.Dtype) {
			return fmt.Errorf("%s (input %d) is %v, which the built-in Add does not know: Sum is nil", in.Name, i, in.Dtype)
		}
	}
	return nil
}

// Output returns the node of an output; the same one at each call.
func (a *Applied) Output(i int) (_ *gorgonia.Node, err error) {
	if i < 0 || i >= len(a.outputs) {
		return nil, fmt.Errorf("%s: output %d, want one of %d", a.op.Name, i, len(a.outputs))
	}
	if a.bundle == nil {
		if a.bundle, err = a.op.bundleNode(a.inputs); err != nil {
			return nil, fmt.Errorf("%s: %w", a.op.Name, err)
		}
	}
	if a.outputs[i] == nil {
		a.outputs[i], err = outputNode(a.op, i, a.bundle)
	}
	return a.outputs[i], err
}

func (o *Operator) bundleNode(inputs gorgonia.Nodes) (*gorgonia.Node, error) {
	nodes := slices.Clone(inputs)
	for i, n := range nodes {
		if !addable(n.Dtype()) {
			var err error
			if nodes[i], err = fork(n, o.Sum); err != nil {
				return nil, err
			}
		}
	}
	return gorgonia.ApplyOp(forward{Operator: o}, nodes...)
}

// checkAll returns an error if tensors are not what is described. A nil tensor
// passes where optional says so.
func checkAll(got []tensor.Tensor, want []Operand, optional bool) error {
	if len(got) != len(want) {
		return fmt.Errorf("got %d tensors, want %d", len(got), len(want))
	}
	for i, t := range got {
		switch w := want[i]; {
		case t == nil && optional:
		case t == nil:
			return fmt.Errorf("%s is missing", w.Name)
		case t.Dtype() != w.Dtype || !t.Shape().Eq(w.Shape):
			return fmt.Errorf("%s is %v %v, want %v %v", w.Name, t.Dtype(), t.Shape(), w.Dtype, w.Shape)
		}
	}
	return nil
}

// run calls f and turns a panic into an error: Gorgonia's machines run operators
// on goroutines where a caller cannot recover.
func run(name string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			if e, ok := p.(error); ok {
				err = fmt.Errorf("panic: %w", e)
			}
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
	}()
	return f()
}

var errNoBundle = errors.New("the operand is no bundle: its node was given a value from outside")
