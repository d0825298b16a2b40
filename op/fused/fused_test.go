package fused_test

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/op/fused"
	"github.com/mhc-go/mhc/tests/gradcheck"
)

func matrixInput() gorgonia.Nodes {
	g := gorgonia.NewGraph()
	return gorgonia.Nodes{gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(2, 3), gorgonia.WithValue(matrix()))}
}

func matrix() *tensor.Dense {
	return tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{0.5, -1, 2, 3, 0.25, -2}))
}

// The operator of the example has the right gradients on both machines, by each
// of its outputs and by both.
func TestMoments(t *testing.T) {
	for name, loss := range map[string]func(mean, variance *gorgonia.Node) (*gorgonia.Node, error){
		"mean":     func(mean, _ *gorgonia.Node) (*gorgonia.Node, error) { return mean, nil },
		"variance": func(_, variance *gorgonia.Node) (*gorgonia.Node, error) { return variance, nil },
		"both": func(mean, variance *gorgonia.Node) (*gorgonia.Node, error) {
			return gorgonia.HadamardProd(mean, variance)
		},
	} {
		t.Run(name, func(t *testing.T) {
			machines := []gradcheck.Machine{gradcheck.Tape, gradcheck.Lisp}
			if name != "both" {
				machines = machines[:1] // Moments makes both nodes, so one is an unused root
			}
			gradcheck.Test(t, func(_ *gorgonia.ExprGraph, in gorgonia.Nodes) (*gorgonia.Node, error) {
				mean, variance, err := Moments(in[0])
				if err != nil {
					return nil, err
				}
				out, err := loss(mean, variance)
				if err != nil {
					return nil, err
				}
				square, err := gorgonia.Square(out)
				if err != nil {
					return nil, err
				}
				return gorgonia.Sum(square)
			}, []gradcheck.Input{{Name: "x", Value: matrix()}}, gradcheck.Config{Elements: true, Machines: machines})
		})
	}
}

// scale is an operator of one input whose parts a test can replace.
func scale(x *gorgonia.Node) *fused.Operator {
	in, err := fused.OperandOf("x", x)
	if err != nil {
		panic(err)
	}
	twice := func(t tensor.Tensor) ([]tensor.Tensor, error) {
		s, err := tensor.Mul(t, 2.0)
		return []tensor.Tensor{s}, err
	}
	return &fused.Operator{
		Name: "Twice", Settings: []fused.Setting{{Name: "by", Value: 2}},
		Inputs: []fused.Operand{in}, Outputs: []fused.Operand{{Name: "y", Dtype: in.Dtype, Shape: in.Shape}},
		Forward:  func(in []tensor.Tensor) ([]tensor.Tensor, error) { return twice(in[0]) },
		Backward: func(t fused.Tape) ([]tensor.Tensor, error) { return twice(t.Up[0]) },
	}
}

// Whatever goes wrong in an operator is an error of the run.
func TestFaultyOperators(t *testing.T) {
	failure := errors.New("no memory")
	wrongShape := []tensor.Tensor{tensor.New(tensor.WithShape(3), tensor.Of(tensor.Float64))}
	wrongDtype := []tensor.Tensor{tensor.New(tensor.WithShape(2, 3), tensor.Of(tensor.Float32))}
	for _, c := range []struct {
		name  string
		fault func() ([]tensor.Tensor, error)
		want  string // after the operator's name, of the forward pass
		grad  string // and of the backward pass
	}{
		{"error", func() ([]tensor.Tensor, error) { return nil, failure }, "no memory", "no memory"},
		{"panic with an error", func() ([]tensor.Tensor, error) { panic(failure) }, "panic: no memory", "panic: no memory"},
		{"panic", func() ([]tensor.Tensor, error) { panic("index") }, "panic: index", "panic: index"},
		{"too few results", func() ([]tensor.Tensor, error) { return nil, nil }, "got 0 tensors, want 1", "gradient: got 0 tensors, want 1"},
		{"nil result", func() ([]tensor.Tensor, error) { return make([]tensor.Tensor, 1), nil }, "y is missing", "gradient: x is missing"},
		{"wrong shape", func() ([]tensor.Tensor, error) { return wrongShape, nil }, "y is float64 (3), want float64 (2, 3)", "gradient: x is float64 (3), want float64 (2, 3)"},
		{"wrong dtype", func() ([]tensor.Tensor, error) { return wrongDtype, nil }, "y is float32 (2, 3), want float64 (2, 3)", "gradient: x is float32 (2, 3), want float64 (2, 3)"},
	} {
		for _, kind := range machine.Kinds {
			for _, backward := range []bool{false, true} {
				if kind == machine.Lisp && !backward {
					continue // LispMachine has a data race with itself when an operator fails
				}
				t.Run(fmt.Sprintf("%s/%v/backward=%t", c.name, kind, backward), func(t *testing.T) {
					in := matrixInput()
					o := scale(in[0])
					want := "Twice: " + c.want
					if backward {
						want = "Twice.backward: " + c.grad
						o.Backward = func(fused.Tape) ([]tensor.Tensor, error) { return c.fault() }
					} else {
						o.Forward = func([]tensor.Tensor) ([]tensor.Tensor, error) { return c.fault() }
					}
					a, err := o.Apply(in...)
					require.NoError(t, err)
					y, err := a.Output(0)
					require.NoError(t, err)
					loss, err := gorgonia.Sum(y)
					require.NoError(t, err)
					m, err := machine.New(kind, machine.Program{Graph: y.Graph(), Loss: loss, Inputs: in})
					require.NoError(t, err)
					defer m.Close()
					_, err = m.Run()
					require.ErrorContains(t, err, want)
				})
			}
		}
	}
}

func TestApplyRefuses(t *testing.T) {
	in := matrixInput()
	o := scale(in[0])
	other := gorgonia.NewMatrix(in[0].Graph(), tensor.Float64, gorgonia.WithName("other"), gorgonia.WithShape(3, 3))
	for _, c := range []struct {
		nodes gorgonia.Nodes
		want  string
	}{
		{nil, "Twice: got 0 nodes, want 1"},
		{gorgonia.Nodes{nil}, "Twice: x is a nil node"},
		{gorgonia.Nodes{other}, "Twice: x is float64 (3, 3), want float64 (2, 3)"},
	} {
		_, err := o.Apply(c.nodes...)
		assert.EqualError(t, err, c.want)
	}
	a, err := o.Apply(in...)
	require.NoError(t, err)
	for _, i := range []int{-1, 1} {
		_, err := a.Output(i)
		assert.EqualError(t, err, fmt.Sprintf("Twice: output %d, want one of 1", i))
	}
	for want, change := range map[string]func(o *fused.Operator){
		"Twice: has no Forward":                                     func(o *fused.Operator) { o.Forward = nil },
		"Twice: has no Backward":                                    func(o *fused.Operator) { o.Backward = nil },
		"Twice: BackwardInputs is [0 1], want indices of 1 inputs":  func(o *fused.Operator) { o.BackwardInputs = []int{0, 1} },
		"Twice: BackwardOutputs is [-1], want indices of 1 outputs": func(o *fused.Operator) { o.BackwardOutputs = []int{-1} },
		"Twice: x (input 0) is myFloat, which the built-in Add does not know: Sum is nil": func(o *fused.Operator) {
			o.Inputs[0].Dtype = tensor.Dtype{Type: reflect.TypeFor[myFloat]()}
		},
	} {
		o := scale(in[0])
		change(o)
		_, err := o.Apply(in...)
		assert.EqualError(t, err, want)
	}
}

type myFloat float64

// A value bound to the node of an operator from outside is no bundle.
func TestNoBundle(t *testing.T) {
	in := matrixInput()
	a, err := scale(in[0]).Apply(in...)
	require.NoError(t, err)
	y, err := a.Output(0)
	require.NoError(t, err)
	_, err = y.Op().Do(matrix())
	assert.EqualError(t, err, "Twice.y: the operand is no bundle: its node was given a value from outside")
}

// An operator that says its settings is one node where they are equal.
func TestEqualOperatorsMerge(t *testing.T) {
	in := matrixInput()
	output := func(by any) *gorgonia.Node {
		o := scale(in[0])
		o.Settings[0].Value = by
		a, err := o.Apply(in...)
		require.NoError(t, err)
		n, err := a.Output(0)
		require.NoError(t, err)
		return n
	}
	assert.Same(t, output(2), output(2))
	assert.NotSame(t, output(2), output(3))
}

// The document for writers of operators shows the example as it is compiled.
func TestDocumentShowsExample(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	doc, err := os.ReadFile("../../docs/extending.md")
	require.NoError(t, err)
	code := string(source)
	code = code[strings.Index(code, "// Moments computes"):strings.Index(code, "\n// An operator with two outputs")]
	assert.Contains(t, string(doc), "```go\n"+code+"```\n")
}
