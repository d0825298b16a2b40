package main

import (
	"fmt"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/graph"
	"github.com/mhc-go/mhc/op"
)

// block is what a layer computes, from [N, C] to [N, C].
type block func(*G.Node) (*G.Node, error)

// residual carries a token from block to block.
type residual interface {
	// in takes the embedding [N, C] to what is carried.
	in(x *G.Node) (*G.Node, error)
	// layer runs f as layer i.
	layer(i int, x *G.Node, f block) (*G.Node, error)
	// out takes what is carried to [N, C].
	out(x *G.Node) (*G.Node, error)
	// learnables are the residual's own weights.
	learnables() G.Nodes
	// watchGain watches how much the layers' h_res amplify, nil where there are
	// none. It comes after the last layer.
	watchGain() (*graph.GainWatch, error)
}

func newResidual(m *model) (residual, error) {
	switch m.cfg.Residual {
	case "mhc":
		return newConstrained(m)
	case "hc":
		return &unconstrained{m: m}, nil
	case "plain":
		return plain{}, nil
	}
	return nil, fmt.Errorf("residual %q, want mhc, hc or plain", m.cfg.Residual)
}

// plain is x + f(x).
type plain struct{}

func (plain) in(x *G.Node) (*G.Node, error) { return x, nil }

func (plain) layer(_ int, x *G.Node, f block) (*G.Node, error) {
	y, err := f(x)
	if err != nil {
		return nil, err
	}
	return G.Add(x, y)
}

func (plain) out(x *G.Node) (*G.Node, error)       { return x, nil }
func (plain) learnables() G.Nodes                  { return nil }
func (plain) watchGain() (*graph.GainWatch, error) { return nil, nil }

// constrained is mHC: package graph's stack.
type constrained struct {
	stack *graph.Stack
	apply mhc.Apply
}

func newConstrained(m *model) (*constrained, error) {
	cfg := m.cfg.Preset.Config(m.cfg.Streams)
	s, err := graph.NewStack(m.g, "mhc", 2*m.cfg.Blocks, graph.Config{MHC: cfg, Channels: m.cfg.Channels, Rand: m.rng})
	return &constrained{s, cfg.Apply}, err
}

func (c *constrained) in(x *G.Node) (*G.Node, error) { return c.stack.In(x) }

func (c *constrained) layer(i int, x *G.Node, f block) (*G.Node, error) {
	return c.stack.Layers()[i].Apply(x, f)
}

func (c *constrained) out(x *G.Node) (*G.Node, error) { return c.stack.Out(x) }
func (c *constrained) learnables() G.Nodes            { return c.stack.Learnables() }

func (c *constrained) watchGain() (*graph.GainWatch, error) { return c.stack.WatchGain() }

// unconstrained is hyper-connections without a projection (arXiv 2409.19606):
// every coefficient is alpha * tanh(mix) + b. It starts as mHC does: h_pre is
// 1/n, h_post is 1, h_res is the identity.
type unconstrained struct {
	m   *model
	res G.Nodes
}

// hcAlpha is where the data-dependent part of the coefficients starts.
const hcAlpha = 0.01

func (u *unconstrained) in(x *G.Node) (*G.Node, error) { return op.Streams(x, u.m.cfg.Streams) }

func (u *unconstrained) layer(i int, x *G.Node, f block) (*G.Node, error) {
	n := u.m.cfg.Streams
	read, err := u.coefficients(x, fmt.Sprintf("hc.%d.pre", i), n, func(int) float32 { return 1 / float32(n) })
	if err != nil {
		return nil, err
	}
	write, err := u.coefficients(x, fmt.Sprintf("hc.%d.post", i), n, func(int) float32 { return 1 })
	if err != nil {
		return nil, err
	}
	mix, err := u.coefficients(x, fmt.Sprintf("hc.%d.res", i), n*n, func(i int) float32 {
		if i/n == i%n {
			return 1
		}
		return 0
	})
	if err != nil {
		return nil, err
	}
	if mix, err = G.Reshape(mix, tensor.Shape{x.Shape()[0], n, n}); err != nil {
		return nil, err
	}
	u.res = append(u.res, mix)
	h, err := op.Pre(x, read)
	if err != nil {
		return nil, err
	}
	if h, err = f(h); err != nil {
		return nil, err
	}
	return op.PostRes(x, h, write, mix, mhc.ApplyRows)
}

// coefficients are alpha * tanh(r * (x phi)) + b, [N, width].
func (u *unconstrained) coefficients(x *G.Node, name string, width int, bias func(i int) float32) (*G.Node, error) {
	k := x.Shape()[1] * x.Shape()[2]
	phi := u.m.param(name+".phi", 0.02, k, width)
	alpha := u.m.filled(name+".alpha", func(int) float32 { return hcAlpha }, 1, 1)
	b := u.m.filled(name+".b", bias, 1, width)
	mix, err := op.MatMulRMS(x, phi, op.MatMulRMSConfig{RMSEps: rmsEps})
	s := chain{mix, err}
	s.then(G.Tanh)
	s.then(func(t *G.Node) (*G.Node, error) { return G.BroadcastHadamardProd(t, alpha, nil, []byte{0, 1}) })
	s.then(func(t *G.Node) (*G.Node, error) { return G.BroadcastAdd(t, b, nil, []byte{0}) })
	s.reshape(x.Shape()[0], width)
	return s.node, s.err
}

func (u *unconstrained) out(x *G.Node) (*G.Node, error) {
	tokens, n := x.Shape()[0], x.Shape()[1]
	mean := make([]float32, tokens*n)
	for i := range mean {
		mean[i] = 1 / float32(n)
	}
	w := G.NewMatrix(u.m.g, tensor.Float32, G.WithName("hc.mean"), G.WithShape(tokens, n),
		G.WithValue(tensor.New(tensor.WithShape(tokens, n), tensor.WithBacking(mean))))
	return op.Pre(x, w)
}

// learnables are none of its own: the model has made them.
func (u *unconstrained) learnables() G.Nodes { return nil }

func (u *unconstrained) watchGain() (*graph.GainWatch, error) {
	return graph.WatchGain(mhc.ApplyRows, u.res...)
}
