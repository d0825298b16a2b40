package graph

import (
	"fmt"
	"slices"
	"strconv"

	"gorgonia.org/gorgonia"

	"github.com/mhc-go/mhc/op"
)

// Stack is what replaces the residual stream of a network: In makes n streams of
// one, the layers read, write and mix them, Out makes them one again.
//
//	x, err := stack.In(embedded)                    // [..., C] to [..., n, C]
//	for i, layer := range stack.Layers() {
//		x, err = layer.Apply(x, block[i])
//	}
//	h, err := stack.Out(x)                          // [..., n, C] to [..., C]
//
// A model without In and Out has [NewLayer] for each of its layers.
type Stack struct {
	cfg    Config
	name   string
	layers []*Layer
	head   *Head
}

// NewStack adds the parameters of the layers, named <name>.0.phi and so on, and
// those of the head, <name>.head.phi [K, n] (or [n, K]), <name>.head.b [n] and
// <name>.head.alpha [1], to g. It returns an error if g has a node of such a name.
func NewStack(g *gorgonia.ExprGraph, name string, layers int, cfg Config) (*Stack, error) {
	if layers < 1 {
		return nil, fmt.Errorf("stack %s: graph: %d layers, want 1 or more", name, layers)
	}
	s := &Stack{cfg: cfg, name: name, layers: make([]*Layer, layers)}
	for i := range s.layers {
		var err error
		if s.layers[i], err = NewLayer(g, name+"."+strconv.Itoa(i), cfg); err != nil {
			return nil, err
		}
	}
	var err error
	if s.head, err = NewHead(g, name+".head", cfg); err != nil {
		return nil, err
	}
	return s, nil
}

// In makes every stream a copy of x, [..., C] to [..., n, C].
func (s *Stack) In(x *gorgonia.Node) (*gorgonia.Node, error) {
	out, err := op.Streams(x, s.cfg.MHC.Streams)
	if err != nil {
		return nil, fmt.Errorf("stack %s: %w", s.name, err)
	}
	return out, nil
}

// Out reads the streams, [..., n, C] to [..., C], in the parameters' dtype.
func (s *Stack) Out(x *gorgonia.Node) (*gorgonia.Node, error) { return s.head.Apply(x) }

// Head is the way out.
func (s *Stack) Head() *Head { return s.head }

// Layers are the layers, in order.
func (s *Stack) Layers() []*Layer { return slices.Clone(s.layers) }

// Learnables are the parameters of the layers and of the head. All take part in
// a gradient once every layer and Out are on the way to the cost.
func (s *Stack) Learnables() gorgonia.Nodes {
	var all gorgonia.Nodes
	for _, l := range s.layers {
		all = append(all, l.Learnables()...)
	}
	return append(all, s.head.Learnables()...)
}

// WatchGain watches the h_res of every layer that has been applied, in the order
// of the layers; see [WatchGain].
func (s *Stack) WatchGain() (*GainWatch, error) {
	var hres gorgonia.Nodes
	for _, l := range s.layers {
		hres = append(hres, l.mixing...)
	}
	return WatchGain(s.cfg.MHC.Apply, hres...)
}
