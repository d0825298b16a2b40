package graph

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"

	"github.com/mhc-go/mhc/op"
)

// Layer is an mHC layer around a function of one stream (arXiv 2512.24880, eq. 3
// and 7-9). Its parameters are phi [K, M] (or [M, K], where the settings say so),
// b [M] and alpha [3], with n streams of C channels, K = n*C and M = n*n + 2*n.
type Layer struct {
	name   string
	cfg    Config
	params parameters
	mixing gorgonia.Nodes
}

// NewLayer adds the parameters <name>.phi, <name>.b and <name>.alpha to g, and
// returns an error if g has a node of such a name.
func NewLayer(g *gorgonia.ExprGraph, name string, cfg Config) (*Layer, error) {
	params, err := newParameters(g, name, cfg, layerInit)
	if err != nil {
		return nil, fmt.Errorf("layer %s: %w", name, err)
	}
	return &Layer{name: name, cfg: cfg, params: params}, nil
}

// Apply is x_out = h_res x + h_post f(h_pre x), with x [..., n, C] and what f
// takes and returns [..., C]. x is of the parameters' dtype or of a 16-bit one;
// then f gets and may return the parameters' dtype, and the streams in between
// are stored in x's ([op.Cast] at both borders).
//
// A layer's Learnables take part in a gradient only once the layer has been
// applied on the way to the cost; before, Grad refuses them.
func (l *Layer) Apply(x *gorgonia.Node, f func(*gorgonia.Node) (*gorgonia.Node, error)) (*gorgonia.Node, error) {
	out, err := l.apply(x, f)
	if err != nil {
		return nil, fmt.Errorf("layer %s: %w", l.name, err)
	}
	return out, nil
}

func (l *Layer) apply(x *gorgonia.Node, f func(*gorgonia.Node) (*gorgonia.Node, error)) (*gorgonia.Node, error) {
	if f == nil {
		return nil, errors.New("graph: f is nil")
	}
	c, err := op.Coeffs(x, l.params.phi, l.params.b, l.params.alpha, l.cfg.MHC)
	if err != nil {
		return nil, err
	}
	pre, err := c.Pre()
	if err != nil {
		return nil, err
	}
	post, err := c.Post()
	if err != nil {
		return nil, err
	}
	res, err := c.Res()
	if err != nil {
		return nil, err
	}
	in, err := op.Pre(x, pre)
	if err != nil {
		return nil, err
	}
	if in, err = op.Cast(in, l.cfg.dtype()); err != nil {
		return nil, err
	}
	h, err := f(in)
	if err != nil {
		return nil, err
	}
	if h == nil {
		return nil, errors.New("graph: f returned a nil node")
	}
	if h, err = op.Cast(h, x.Dtype()); err != nil {
		return nil, err
	}
	out, err := op.PostRes(x, h, post, res, l.cfg.MHC.Apply)
	if err != nil {
		return nil, err
	}
	l.mixing = append(l.mixing, res)
	return out, nil
}

// Learnables are phi, b and alpha.
func (l *Layer) Learnables() gorgonia.Nodes { return l.params.nodes() }

// Mixing are the nodes of h_res [..., n, n], one for each Apply, for [WatchGain].
func (l *Layer) Mixing() gorgonia.Nodes { return slices.Clone(l.mixing) }

// Name is the layer's name, the prefix of its parameters' names.
func (l *Layer) Name() string { return l.name }
