package graph

import (
	"fmt"
	"math"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
)

// parameters are phi, b and alpha of a layer or of a head.
type parameters struct{ phi, b, alpha *gorgonia.Node }

func (p parameters) nodes() gorgonia.Nodes { return gorgonia.Nodes{p.phi, p.b, p.alpha} }

// newParameters makes the nodes <name>.phi, <name>.b and <name>.alpha. phi has as
// many columns as b has numbers.
func newParameters(g *gorgonia.ExprGraph, name string, cfg Config, b, alpha []float64) (p parameters, err error) {
	k, m := cfg.MHC.Streams*cfg.Channels, len(b)
	shape := tensor.Shape{k, m}
	if cfg.MHC.Phi == mhc.PhiMK {
		shape = tensor.Shape{m, k}
	}
	phi := make([]float64, k*m)
	normal := rand.New(cfg.Rand)
	for i := range phi {
		phi[i] = 0.02 * normal.NormFloat64()
	}
	for _, n := range []struct {
		to     **gorgonia.Node
		name   string
		shape  tensor.Shape
		values []float64
	}{
		{&p.phi, name + ".phi", shape, phi},
		{&p.b, name + ".b", tensor.Shape{m}, b},
		{&p.alpha, name + ".alpha", tensor.Shape{len(alpha)}, alpha},
	} {
		if *n.to, err = newParameter(g, n.name, cfg.dtype(), n.shape, n.values); err != nil {
			return parameters{}, err
		}
	}
	return p, nil
}

// newParameter makes an input node that holds values. A node of that name must
// not be there yet: Gorgonia would make the two one, or leave names that are not
// unique, which files and solvers find parameters by.
func newParameter(g *gorgonia.ExprGraph, name string, dt tensor.Dtype, shape tensor.Shape, values []float64) (*gorgonia.Node, error) {
	if len(g.ByName(name)) > 0 {
		return nil, fmt.Errorf("the graph has a node named %s already", name)
	}
	t := tensor.New(tensor.Of(dt), tensor.WithShape(shape...))
	switch dt {
	case tensor.Float32:
		for i, v := range values {
			t.Float32s()[i] = float32(v)
		}
	default:
		copy(t.Float64s(), values)
	}
	return gorgonia.NewTensor(g, dt, shape.Dims(), gorgonia.WithName(name), gorgonia.WithShape(shape...), gorgonia.WithValue(t)), nil
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
