package graph

import (
	"fmt"

	"gorgonia.org/gorgonia"

	"github.com/mhc-go/mhc/op"
)

// Head is the way out of the streams, [..., n, C] to [..., C], a sum whose weights
// depend on them. Its parameters are phi [K, n] (or [n, K], where the settings say
// so), b [n] and alpha [1].
type Head struct {
	name   string
	cfg    Config
	params parameters
}

// NewHead adds the parameters <name>.phi, <name>.b and <name>.alpha to g, and
// returns an error if g has a node of such a name.
func NewHead(g *gorgonia.ExprGraph, name string, cfg Config) (*Head, error) {
	params, err := newParameters(g, name, cfg, headInit)
	if err != nil {
		return nil, fmt.Errorf("head %s: %w", name, err)
	}
	return &Head{name: name, cfg: cfg, params: params}, nil
}

// Apply reads the streams x; what it returns is in the parameters' dtype.
func (h *Head) Apply(x *gorgonia.Node) (*gorgonia.Node, error) {
	out, err := op.Head(x, h.params.phi, h.params.b, h.params.alpha, h.cfg.MHC.Head())
	if err != nil {
		return nil, fmt.Errorf("head %s: %w", h.name, err)
	}
	return op.Cast(out, h.cfg.dtype())
}

// Learnables are phi, b and alpha.
func (h *Head) Learnables() gorgonia.Nodes { return h.params.nodes() }
