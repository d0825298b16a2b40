package graph

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/dtype"
)

// parameters are phi, b and alpha of a layer or of a head.
type parameters struct {
	phi, b, alpha *gorgonia.Node
	layout        mhc.PhiLayout
}

func (p parameters) nodes() gorgonia.Nodes { return gorgonia.Nodes{p.phi, p.b, p.alpha} }

// newParameters makes the nodes <name>.phi, <name>.b and <name>.alpha. start gives
// b and alpha; phi has as many columns as b has numbers.
func newParameters(g *gorgonia.ExprGraph, name string, cfg Config, start func(init Init, n int) (b, alpha []float64)) (p parameters, err error) {
	if g == nil {
		return p, errors.New("graph: the graph is nil")
	}
	if err := cfg.validate(); err != nil {
		return p, err
	}
	for _, part := range []string{".phi", ".b", ".alpha"} {
		if len(g.ByName(name+part)) > 0 {
			// Gorgonia would make the two nodes one, or leave names that are not unique,
			// which files and solvers find parameters by.
			return p, fmt.Errorf("graph: the graph has a node named %s already", name+part)
		}
	}
	b, alpha := start(cfg.Init, cfg.MHC.Streams)
	k, m := cfg.MHC.Streams*cfg.Channels, len(b)
	shape := tensor.Shape{k, m}
	if cfg.MHC.Phi == mhc.PhiMK {
		shape = tensor.Shape{m, k}
	}
	phi := make([]float64, k*m)
	p.layout = cfg.MHC.Phi
	normal := rand.New(cfg.Rand)
	for i := range phi {
		phi[i] = 0.02 * normal.NormFloat64()
	}
	p.phi = newParameter(g, name+".phi", cfg.dtype(), phi, shape...)
	p.b = newParameter(g, name+".b", cfg.dtype(), b, m)
	p.alpha = newParameter(g, name+".alpha", cfg.dtype(), alpha, len(alpha))
	return p, nil
}

// newParameter makes an input node that holds values, rounded to dt.
func newParameter(g *gorgonia.ExprGraph, name string, dt tensor.Dtype, values []float64, shape ...int) *gorgonia.Node {
	t := tensor.New(tensor.Of(dt), tensor.WithShape(shape...))
	switch dt {
	case tensor.Float32:
		dtype.Narrow(t.Float32s(), values)
	case tensor.Float64:
		dtype.Narrow(t.Float64s(), values)
	}
	return gorgonia.NewTensor(g, dt, len(shape), gorgonia.WithName(name), gorgonia.WithShape(shape...), gorgonia.WithValue(t))
}

// sigmoidInverse is the x whose sigmoid is p, at most 10.
func sigmoidInverse(p float64) float64 { return min(10, math.Log(p)-math.Log1p(-p)) }

// layerInit is b and alpha of a layer at the start.
func layerInit(init Init, n int) (b, alpha []float64) {
	b = make([]float64, n*(n+2))
	if init == Liger {
		return b, []float64{1, 1, 1}
	}
	for i := range n {
		b[i] = sigmoidInverse(1 / float64(n))
		b[2*n+i*n+i] = 10
	}
	return b, []float64{0.01, 0.01, 0.01}
}

// headInit is b and alpha of a head at the start.
func headInit(init Init, n int) (b, alpha []float64) {
	b = make([]float64, n)
	if init == Liger {
		return b, []float64{1}
	}
	for i := range b {
		b[i] = sigmoidInverse(1 / float64(n))
	}
	return b, []float64{0.01}
}
