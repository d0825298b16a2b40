package tests

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/graph"
	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/op"
)

// coeffsCase is a call of the coefficients, with its values.
type coeffsCase struct {
	cfg      mhc.Config
	lead     []int // leading dimensions of x
	channels int
	dtype    tensor.Dtype // of x and phi
	x, phi   []float64
	b, alpha []float64
	up       [3][]float64 // gradients by h_pre, h_post, h_res
}

// newCase draws values from a seed.
func newCase(cfg mhc.Config, channels int, dt tensor.Dtype, seed uint64, lead ...int) coeffsCase {
	rng := rand.New(rand.NewPCG(seed, 1))
	draw := func(size int, scale float64) []float64 {
		v := make([]float64, size)
		for i := range v {
			v[i] = scale * rng.NormFloat64()
		}
		return v
	}
	n, k, m := cfg.Streams, cfg.Streams*channels, cfg.Width()
	tokens := tensor.Shape(lead).TotalSize()
	return coeffsCase{
		cfg: cfg, lead: lead, channels: channels, dtype: dt,
		x: draw(tokens*k, 1), phi: draw(k*m, 1/math.Sqrt(float64(k))), b: draw(m, 0.5), alpha: draw(3, 1),
		up: [3][]float64{draw(tokens*n, 1), draw(tokens*n, 1), draw(tokens*n*n, 1)},
	}
}

// coeffsResult is all that comes out, widened.
type coeffsResult struct {
	pre, post, res   []float64
	x, phi, b, alpha []float64 // gradients
}

func (r coeffsResult) all() map[string][]float64 {
	return map[string][]float64{
		"h_pre": r.pre, "h_post": r.post, "h_res": r.res,
		"dx": r.x, "dphi": r.phi, "db": r.b, "dalpha": r.alpha,
	}
}

// run computes a case on a machine, with all three outputs used.
func (c coeffsCase) run(t require.TestingT, kind machine.Kind) coeffsResult {
	g := gorgonia.NewGraph()
	a := tensor.Float32
	if c.dtype == tensor.Float64 {
		a = c.dtype
	}
	n, k, m := c.cfg.Streams, c.cfg.Streams*c.channels, c.cfg.Width()
	at := func(last ...int) []int { return append(append([]int{}, c.lead...), last...) }
	in := gorgonia.Nodes{
		node(g, "x", c.dtype, c.x, at(n, c.channels)...),
		node(g, "phi", c.dtype, c.phi, phiShape(c.cfg.Phi, k, m)...),
		node(g, "b", a, c.b, m),
		node(g, "alpha", a, c.alpha, 3),
	}
	coeffs, err := op.Coeffs(in[0], in[1], in[2], in[3], c.cfg)
	require.NoError(t, err)
	p := machine.Program{Graph: g, Inputs: in}
	for i, output := range []func() (*gorgonia.Node, error){coeffs.Pre, coeffs.Post, coeffs.Res} {
		out, err := output()
		require.NoError(t, err)
		p.Outputs = append(p.Outputs, out)
		up := node(g, []string{"up_pre", "up_post", "up_res"}[i], a, c.up[i], out.Shape()...)
		part := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.HadamardProd(out, up))))
		if p.Loss == nil {
			p.Loss = part
		} else {
			p.Loss = gorgonia.Must(gorgonia.Add(p.Loss, part))
		}
	}
	vm, err := machine.New(kind, p)
	require.NoError(t, err)
	defer vm.Close()
	r, err := vm.Run()
	require.NoError(t, err)
	return coeffsResult{
		pre: wide(r.Outputs[0]), post: wide(r.Outputs[1]), res: wide(r.Outputs[2]),
		x: wide(r.Gradients[0]), phi: wide(r.Gradients[1]), b: wide(r.Gradients[2]), alpha: wide(r.Gradients[3]),
	}
}

// node is an input of numbers, rounded to a dtype.
func node(g *gorgonia.ExprGraph, name string, dt tensor.Dtype, v []float64, shape ...int) *gorgonia.Node {
	value := must(graph.Convert(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(v)), dt))
	return gorgonia.NewTensor(g, dt, len(shape), gorgonia.WithName(name), gorgonia.WithShape(shape...), gorgonia.WithValue(value))
}

// wide is a copy of a tensor's numbers.
func wide(v gorgonia.Value) []float64 {
	return must(graph.Convert(v.(*tensor.Dense), tensor.Float64)).Float64s()
}

func must(t *tensor.Dense, err error) *tensor.Dense {
	if err != nil {
		panic(err)
	}
	return t
}

// sameBits fails unless two results are equal to the last bit, NaN included.
func sameBits(t *testing.T, want, got coeffsResult) {
	t.Helper()
	other := got.all()
	for name, w := range want.all() {
		require.Len(t, other[name], len(w), name)
		for i := range w {
			if math.Float64bits(w[i]) != math.Float64bits(other[name][i]) {
				t.Fatalf("%s[%d] is %v, was %v", name, i, other[name][i], w[i])
			}
		}
	}
}
