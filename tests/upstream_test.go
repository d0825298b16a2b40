package tests

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/tests/gradcheck"
)

// Faults of Gorgonia's own operators that the gradient checker has found, and
// that this project's models and measurements stay clear of. A test here that
// fails says that Gorgonia has changed.

// check differentiates the sum of an operator's result times fixed weights.
func check(m gradcheck.Machine, x gradcheck.Input, apply func(x *gorgonia.Node) (*gorgonia.Node, error)) error {
	_, err := gradcheck.Check(of(func(in gorgonia.Nodes) (*gorgonia.Node, error) { return apply(in[0]) }),
		[]gradcheck.Input{x}, gradcheck.Config{Machines: []gradcheck.Machine{m}})
	return err
}

// The gradient of InverseSqrt is wrong; that of Inverse(Sqrt) is right.
func TestUpstreamInverseSqrt(t *testing.T) {
	x := gradcheck.Input{Name: "x", Value: tensor.New(tensor.WithBacking([]float64{1, 2, 3, 4}))}
	assert.ErrorContains(t, check(gradcheck.Tape, x, gorgonia.InverseSqrt), "gradient of x")
	assert.Error(t, check(gradcheck.Lisp, x, gorgonia.InverseSqrt))
	for _, m := range []gradcheck.Machine{gradcheck.Tape, gradcheck.Lisp} {
		assert.NoError(t, check(m, x, func(x *gorgonia.Node) (*gorgonia.Node, error) {
			return gorgonia.Inverse(gorgonia.Must(gorgonia.Sqrt(x)))
		}))
	}
}

// A TapeMachine computes a sum in place in what a Reshape hands out, which is
// the memory of the operator before: here that of a softmax, which its gradient
// reads. With the two exchanged the gradient is right.
func TestUpstreamWritesThroughReshape(t *testing.T) {
	x := normal("x", 1, 3, 4)
	softmax := func(x *gorgonia.Node) *gorgonia.Node { return gorgonia.Must(gorgonia.SoftMax(x, 1)) }
	reshape := func(x *gorgonia.Node) *gorgonia.Node { return gorgonia.Must(gorgonia.Reshape(x, tensor.Shape{4, 3})) }
	add := func(x *gorgonia.Node) *gorgonia.Node {
		return gorgonia.Must(gorgonia.Add(x, gorgonia.NewConstant(0.1)))
	}
	assert.ErrorContains(t, check(gradcheck.Tape, x, func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return add(reshape(softmax(x))), nil
	}), "gradient of x")
	assert.NoError(t, check(gradcheck.Tape, x, func(x *gorgonia.Node) (*gorgonia.Node, error) {
		return reshape(add(softmax(x))), nil
	}))
}

// On a LispMachine Tanh cannot be differentiated at a tensor of one element.
func TestUpstreamTanhOfOneElement(t *testing.T) {
	apply := func(x *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Tanh(x) }
	assert.ErrorContains(t, check(gradcheck.Lisp, normal("x", 1, 1), apply), "Shape mismatch")
	assert.NoError(t, check(gradcheck.Lisp, normal("x", 1, 2), apply))
}
