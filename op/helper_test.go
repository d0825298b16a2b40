package op_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/op"
	"github.com/mhc-go/mhc/tests/gradcheck"
)

// operand is an input node with its numbers.
type operand struct {
	name  string
	dtype tensor.Dtype
	shape []int
	data  []float64
}

// random makes an operand of numbers in [-1, 1).
func random(rng *rand.Rand, name string, dt tensor.Dtype, shape ...int) operand {
	o := operand{name, dt, shape, make([]float64, tensor.Shape(shape).TotalSize())}
	for i := range o.data {
		o.data[i] = 2*rng.Float64() - 1
	}
	return o
}

func randoms(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// dense is the operand's tensor, rounded to its dtype.
func (o operand) dense() *tensor.Dense {
	n := len(o.data)
	var backing any
	switch o.dtype {
	case tensor.Float64:
		backing = narrow(make([]float64, n), o.data)
	case tensor.Float32:
		backing = narrow(make([]float32, n), o.data)
	case op.BFloat16:
		backing = narrow(make([]dtype.BFloat16, n), o.data)
	case op.Float16:
		backing = narrow(make([]dtype.Float16, n), o.data)
	}
	return tensor.New(tensor.WithShape(o.shape...), tensor.WithBacking(backing))
}

func narrow[T dtype.Storage](dst []T, src []float64) []T {
	dtype.Narrow(dst, src)
	return dst
}

// numbers reads a value as float64.
func numbers(t testing.TB, v gorgonia.Value) []float64 {
	t.Helper()
	switch data := v.Data().(type) {
	case float64:
		return []float64{data}
	case float32:
		return []float64{float64(data)}
	case []float64:
		return widen(data)
	case []float32:
		return widen(data)
	case []dtype.BFloat16:
		return widen(data)
	case []dtype.Float16:
		return widen(data)
	}
	require.Failf(t, "no numbers", "%T", v.Data())
	return nil
}

func widen[T dtype.Storage](src []T) []float64 {
	dst := make([]float64, len(src))
	dtype.Widen(dst, src)
	return dst
}

// build makes output nodes of input nodes.
type build func(in gorgonia.Nodes) (gorgonia.Nodes, error)

func one(n *gorgonia.Node, err error) (gorgonia.Nodes, error) { return gorgonia.Nodes{n}, err }

func inputNodes(g *gorgonia.ExprGraph, in []operand) gorgonia.Nodes {
	nodes := make(gorgonia.Nodes, len(in))
	for i, o := range in {
		nodes[i] = gorgonia.NewTensor(g, o.dtype, len(o.shape), gorgonia.WithShape(o.shape...), gorgonia.WithName(o.name), gorgonia.WithValue(o.dense()))
	}
	return nodes
}

// programOf is a graph with lossOf of b's outputs.
func programOf(t testing.TB, b build, in []operand) machine.Program {
	t.Helper()
	return programWith(t, b, in, lossOf)
}

func programWith(t testing.TB, b build, in []operand, loss func(gorgonia.Nodes) (*gorgonia.Node, error)) machine.Program {
	t.Helper()
	g := gorgonia.NewGraph()
	p := machine.Program{Graph: g, Inputs: inputNodes(g, in)}
	var err error
	p.Outputs, err = b(p.Inputs)
	require.NoError(t, err)
	p.Loss, err = loss(p.Outputs)
	require.NoError(t, err)
	return p
}

// run runs a program once.
func run(t testing.TB, kind machine.Kind, p machine.Program, opts ...gorgonia.VMOpt) machine.Result {
	t.Helper()
	m, err := machine.New(kind, p, opts...)
	require.NoError(t, err)
	defer m.Close()
	r, err := m.Run()
	require.NoError(t, err)
	for i, d := range r.Gradients {
		require.Equal(t, p.Inputs[i].Dtype(), d.Dtype())
		require.Equal(t, p.Inputs[i].Shape(), d.Shape())
	}
	return r
}

// eachMachine runs a test once a kind of machine.
func eachMachine(t *testing.T, f func(t *testing.T, kind machine.Kind)) {
	for _, kind := range machine.Kinds {
		t.Run(kind.String(), func(t *testing.T) { f(t, kind) })
	}
}

// lossOf is the sum of nodes, each multiplied by a fixed pattern of weights, so
// that every element has a gradient of its own. 16-bit nodes are cast.
func lossOf(nodes gorgonia.Nodes) (*gorgonia.Node, error) {
	var total *gorgonia.Node
	for i, n := range nodes {
		if n.Dtype() != tensor.Float64 {
			var err error
			if n, err = op.Cast(n, tensor.Float32); err != nil {
				return nil, err
			}
		}
		w := operand{dtype: n.Dtype(), shape: n.Shape(), data: make([]float64, n.Shape().TotalSize())}
		for j := range w.data {
			w.data[j] = math.Sin(float64(3*j + 7*i + 1))
		}
		weights := gorgonia.NewConstant(w.dense(), gorgonia.WithName(fmt.Sprintf("weights%d of %d", i, n.ID())))
		product, err := gorgonia.HadamardProd(n, weights)
		if err != nil {
			return nil, err
		}
		s, err := gorgonia.Sum(product)
		if err != nil {
			return nil, err
		}
		if total == nil {
			total = s
		} else if total, err = gorgonia.Add(total, s); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// checkGradients compares the gradients of both machines with central
// differences, element by element. All operands are float64.
func checkGradients(t *testing.T, b build, in []operand, machines ...gradcheck.Machine) {
	t.Helper()
	inputs := make([]gradcheck.Input, len(in))
	for i, o := range in {
		inputs[i] = gradcheck.Input{Name: o.name, Value: o.dense()}
	}
	gradcheck.Test(t, func(_ *gorgonia.ExprGraph, in gorgonia.Nodes) (*gorgonia.Node, error) {
		out, err := b(in)
		if err != nil {
			return nil, err
		}
		return lossOf(out)
	}, inputs, gradcheck.Config{Elements: true, Directions: 1, Machines: machines})
}

// requireClose asserts that the norm of the difference is within bound times the
// norm of want.
func requireClose(t testing.TB, want, got []float64, bound float64, what string, args ...any) {
	t.Helper()
	require.Len(t, got, len(want), what, args)
	diff := make([]float64, len(want))
	for i := range want {
		diff[i] = got[i] - want[i]
	}
	if e := norm(diff) / norm(want); !(e <= bound) {
		require.Failf(t, "not close", "%s: error %.3g over %.3g\nwant %v\ngot  %v", fmt.Sprintf(what, args...), e, bound, want, got)
	}
}

func norm(v []float64) float64 {
	s := 0.0
	for _, x := range v {
		s += x * x
	}
	return math.Sqrt(s)
}
