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
	"github.com/mhc-go/mhc/op"
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
		return append([]float64{}, data...)
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

// build makes a scalar loss of input nodes.
type build func(in []*gorgonia.Node) (*gorgonia.Node, error)

// machines are the two ways to run a graph and differentiate it.
var machines = []string{"tape", "lisp"}

// differentiate runs a loss on a machine and returns it and its gradients by the
// inputs.
func differentiate(t testing.TB, machine string, b build, in []operand) (loss float64, grads [][]float64) {
	t.Helper()
	g := gorgonia.NewGraph()
	nodes := inputNodes(g, in)
	cost, err := b(nodes)
	require.NoError(t, err)
	return differentiateGraph(t, machine, cost, nodes)
}

func inputNodes(g *gorgonia.ExprGraph, in []operand) gorgonia.Nodes {
	nodes := make(gorgonia.Nodes, len(in))
	for i, o := range in {
		nodes[i] = gorgonia.NewTensor(g, o.dtype, len(o.shape), gorgonia.WithShape(o.shape...), gorgonia.WithName(o.name), gorgonia.WithValue(o.dense()))
	}
	return nodes
}

func differentiateGraph(t testing.TB, machine string, cost *gorgonia.Node, nodes gorgonia.Nodes) (loss float64, grads [][]float64) {
	t.Helper()
	g := cost.Graph()
	grads = make([][]float64, len(nodes))
	switch machine {
	case "tape":
		ds, err := gorgonia.Grad(cost, nodes...)
		require.NoError(t, err)
		vm := gorgonia.NewTapeMachine(g, gorgonia.BindDualValues())
		defer vm.Close()
		require.NoError(t, vm.RunAll())
		for i, d := range ds {
			require.Equal(t, nodes[i].Dtype(), d.Value().Dtype())
			require.Equal(t, nodes[i].Shape(), d.Value().Shape())
			grads[i] = numbers(t, d.Value())
		}
	case "lisp":
		vm := gorgonia.NewLispMachine(g)
		defer vm.Close()
		require.NoError(t, vm.RunAll())
		for i, n := range nodes {
			d, err := n.Grad()
			require.NoError(t, err)
			require.Equal(t, n.Dtype(), d.Dtype())
			grads[i] = numbers(t, d)
		}
	}
	return numbers(t, cost.Value())[0], grads
}

// lossOf is the sum of nodes, each multiplied by a fixed pattern of weights, so
// that every element has a gradient of its own.
func lossOf(nodes ...*gorgonia.Node) (*gorgonia.Node, error) {
	var total *gorgonia.Node
	for i, n := range nodes {
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

// requireGradients compares the gradients of both machines with central
// differences, element by element. All operands are float64.
func requireGradients(t *testing.T, b build, in []operand) {
	t.Helper()
	const h, bound = 1e-5, 1e-7
	want := make([][]float64, len(in))
	for i := range in {
		want[i] = make([]float64, len(in[i].data))
		for j, v := range in[i].data {
			in[i].data[j] = v + h
			up := evaluate(t, b, in)
			in[i].data[j] = v - h
			down := evaluate(t, b, in)
			in[i].data[j] = v
			want[i][j] = (up - down) / (2 * h)
		}
	}
	for _, m := range machines {
		_, got := differentiate(t, m, b, in)
		for i := range in {
			requireClose(t, want[i], got[i], bound, "%s: gradient of %s", m, in[i].name)
			require.NotZero(t, norm(got[i]), "%s: gradient of %s is all zeros", m, in[i].name)
		}
	}
}

// evaluate runs a loss forward only.
func evaluate(t testing.TB, b build, in []operand) float64 {
	g := gorgonia.NewGraph()
	cost, err := b(inputNodes(g, in))
	require.NoError(t, err)
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	require.NoError(t, vm.RunAll())
	return numbers(t, cost.Value())[0]
}

// requireClose asserts that the norm of the difference is within bound of the
// norm of want (of 1, where that is smaller).
func requireClose(t testing.TB, want, got []float64, bound float64, what string, args ...any) {
	t.Helper()
	require.Len(t, got, len(want), what, args)
	diff := make([]float64, len(want))
	for i := range want {
		diff[i] = got[i] - want[i]
	}
	if e := norm(diff) / max(norm(want), 1); !(e <= bound) {
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
