package op_test

import (
	"fmt"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/op"
)

// opCase is one op on small float64 operands.
type opCase struct {
	name  string
	in    []operand
	build func(in []*gorgonia.Node) ([]*gorgonia.Node, error)
}

func one(n *gorgonia.Node, err error) ([]*gorgonia.Node, error) { return []*gorgonia.Node{n}, err }

// opCases are all ops, with the outputs that a loss is made of.
func opCases() []opCase {
	const n, channels = 3, 4
	rng := randoms(1)
	num := func(name string, shape ...int) operand { return random(rng, name, tensor.Float64, shape...) }
	cfg := mhc.Liger.Config(n)
	cfg.Sinkhorn.Iterations = 3
	m := cfg.Width()
	x := num("x", 2, n, channels)
	coeffs := func(pre, post, res bool) func(in []*gorgonia.Node) ([]*gorgonia.Node, error) {
		return func(in []*gorgonia.Node) (out []*gorgonia.Node, err error) {
			c, err := op.Coeffs(in[0], in[1], in[2], in[3], cfg)
			if err != nil {
				return nil, err
			}
			for _, o := range []struct {
				used bool
				node func() (*gorgonia.Node, error)
			}{{pre, c.Pre}, {post, c.Post}, {res, c.Res}} {
				if !o.used {
					continue
				}
				node, err := o.node()
				if err != nil {
					return nil, err
				}
				out = append(out, node)
			}
			return out, nil
		}
	}
	cases := []opCase{
		{"MatMulRMS", []operand{x, num("phi", n*channels, 5)}, func(in []*gorgonia.Node) ([]*gorgonia.Node, error) {
			return one(op.MatMulRMS(in[0], in[1], op.MatMulRMSConfig{RMSEps: 1e-6}))
		}},
		{"Sinkhorn", []operand{num("logits", 2, n, n)}, func(in []*gorgonia.Node) ([]*gorgonia.Node, error) {
			return one(op.Sinkhorn(in[0], cfg.Sinkhorn))
		}},
		{"Pre", []operand{x, num("hpre", 2, n)}, func(in []*gorgonia.Node) ([]*gorgonia.Node, error) {
			return one(op.Pre(in[0], in[1]))
		}},
		{"Streams", []operand{num("x", 2, channels)}, func(in []*gorgonia.Node) ([]*gorgonia.Node, error) {
			return one(op.Streams(in[0], n))
		}},
		{"Head", []operand{x, num("phi", n*channels, n), num("b", n), num("alpha", 1)}, func(in []*gorgonia.Node) ([]*gorgonia.Node, error) {
			return one(op.Head(in[0], in[1], in[2], in[3], cfg.Head()))
		}},
	}
	for _, apply := range []mhc.Apply{mhc.ApplyRows, mhc.ApplyTransposed} {
		cases = append(cases, opCase{"PostRes/" + apply.String(), []operand{x, num("f", 2, channels), num("hpost", 2, n), num("hres", 2, n, n)}, func(in []*gorgonia.Node) ([]*gorgonia.Node, error) {
			return one(op.PostRes(in[0], in[1], in[2], in[3], apply))
		}})
	}
	for use := 1; use < 8; use++ {
		pre, post, res := use&1 > 0, use&2 > 0, use&4 > 0
		cases = append(cases, opCase{fmt.Sprintf("Coeffs/pre=%t,post=%t,res=%t", pre, post, res),
			[]operand{x, num("phi", n*channels, m), num("b", m), num("alpha", 3)}, coeffs(pre, post, res)})
	}
	return cases
}

func TestGradients(t *testing.T) {
	for _, c := range opCases() {
		t.Run(c.name, func(t *testing.T) {
			requireGradients(t, func(in []*gorgonia.Node) (*gorgonia.Node, error) {
				out, err := c.build(in)
				if err != nil {
					return nil, err
				}
				return lossOf(out...)
			}, c.in)
		})
	}
}
