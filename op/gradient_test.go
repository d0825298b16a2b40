package op_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/op"
)

// opCase is one op with its operands.
type opCase struct {
	name  string
	in    []operand
	build build
}

// sizes of the ops under test.
type sizes struct {
	lead        []int
	n, channels int
}

func (s sizes) with(last ...int) []int { return append(append([]int{}, s.lead...), last...) }

// use is a subset of the outputs of Coeffs.
type use struct{ pre, post, res bool }

var allUsed = use{true, true, true}

// nodes are the used outputs.
func (u use) nodes(c *op.Coefficients) (out gorgonia.Nodes, err error) {
	for _, o := range []struct {
		used bool
		node func() (*gorgonia.Node, error)
	}{{u.pre, c.Pre}, {u.post, c.Post}, {u.res, c.Res}} {
		if !o.used {
			continue
		}
		n, err := o.node()
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

// opCases are all ops with operands of the given dtypes of streams and of phi,
// and a preset's settings at few iterations.
func opCases(s sizes, storage, phi, arithmetic tensor.Dtype, preset mhc.Preset) []opCase {
	rng := randoms(1)
	n, channels := s.n, s.channels
	cfg := preset.Config(n)
	cfg.Sinkhorn.Iterations = 3
	k, m := n*channels, cfg.Width()
	x := random(rng, "x", storage, s.with(n, channels)...)
	number := func(name string, shape ...int) operand { return random(rng, name, arithmetic, shape...) }
	matrix := func(cols int) operand {
		if cfg.Phi == mhc.PhiMK {
			return random(rng, "phi", phi, cols, k)
		}
		return random(rng, "phi", phi, k, cols)
	}
	cases := []opCase{
		{"MatMulRMS", []operand{x, matrix(5)}, func(in gorgonia.Nodes) (gorgonia.Nodes, error) {
			return one(op.MatMulRMS(in[0], in[1], op.MatMulRMSConfig{RMSEps: cfg.RMSEps, Phi: cfg.Phi}))
		}},
		{"Sinkhorn", []operand{number("logits", s.with(n, n)...)}, func(in gorgonia.Nodes) (gorgonia.Nodes, error) {
			return one(op.Sinkhorn(in[0], cfg.Sinkhorn))
		}},
		{"Pre", []operand{x, number("hpre", s.with(n)...)}, func(in gorgonia.Nodes) (gorgonia.Nodes, error) {
			return one(op.Pre(in[0], in[1]))
		}},
		{"PostRes", []operand{x, random(rng, "f", storage, s.with(channels)...), number("hpost", s.with(n)...), number("hres", s.with(n, n)...)}, func(in gorgonia.Nodes) (gorgonia.Nodes, error) {
			return one(op.PostRes(in[0], in[1], in[2], in[3], cfg.Apply))
		}},
		{"Streams", []operand{random(rng, "x", storage, s.with(channels)...)}, func(in gorgonia.Nodes) (gorgonia.Nodes, error) {
			return one(op.Streams(in[0], n))
		}},
		{"Head", []operand{x, matrix(n), number("b", n), number("alpha", 1)}, func(in gorgonia.Nodes) (gorgonia.Nodes, error) {
			return one(op.Head(in[0], in[1], in[2], in[3], cfg.Head()))
		}},
	}
	for bits := 1; bits < 8; bits++ {
		u := use{bits&1 > 0, bits&2 > 0, bits&4 > 0}
		cases = append(cases, opCase{fmt.Sprintf("Coeffs/%+v", u), []operand{x, matrix(m), number("b", m), number("alpha", 3)}, func(in gorgonia.Nodes) (gorgonia.Nodes, error) {
			c, err := op.Coeffs(in[0], in[1], in[2], in[3], cfg)
			if err != nil {
				return nil, err
			}
			return u.nodes(c)
		}})
	}
	return cases
}

func float64Cases(s sizes, p mhc.Preset) []opCase {
	return opCases(s, tensor.Float64, tensor.Float64, tensor.Float64, p)
}

// Every op's gradients are those of central differences on both machines, with
// every subset of the outputs of Coeffs.
func TestGradients(t *testing.T) {
	for _, preset := range mhc.Presets {
		for _, c := range float64Cases(sizes{[]int{2}, 3, 4}, preset) {
			t.Run(preset.String()+"/"+c.name, func(t *testing.T) { checkGradients(t, c.build, c.in) })
		}
	}
}

// The smallest shapes are those where Gorgonia takes tensors for scalars or
// vectors.
func TestGradientsOfSmallShapes(t *testing.T) {
	for _, s := range []sizes{{nil, 2, 3}, {nil, 1, 2}, {[]int{1}, 1, 2}, {[]int{2, 1}, 2, 1}} {
		for _, c := range float64Cases(s, mhc.Liger) {
			if s.n == 1 && c.name == "Sinkhorn" {
				continue // the projection of a 1x1 matrix has no gradient
			}
			t.Run(fmt.Sprintf("%v/%s", s, c.name), func(t *testing.T) { checkGradients(t, c.build, c.in) })
		}
	}
}

// LispMachine takes an op without DoDiff for a constant: its gradients are zero,
// and no error says so.
func TestLispMachineFindsGradients(t *testing.T) {
	for _, c := range float64Cases(sizes{[]int{2}, 3, 4}, mhc.Liger) {
		t.Run(c.name, func(t *testing.T) {
			p := programOf(t, c.build, c.in)
			for i, g := range run(t, machine.Lisp, p).Gradients {
				require.NotZero(t, norm(numbers(t, g)), c.in[i].name)
			}
		})
	}
	p := programOf(t, func(in gorgonia.Nodes) (gorgonia.Nodes, error) { return one(op.Cast(in[0], tensor.Float32)) },
		[]operand{random(randoms(2), "x", tensor.Float64, 3)})
	require.NotZero(t, norm(numbers(t, run(t, machine.Lisp, p).Gradients[0])))
}
