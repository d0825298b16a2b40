package bench

import (
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	sinkhornpkg "github.com/mhc-go/mhc/sinkhorn"
)

// chain applies operators one after the other and keeps the first error, so that
// formulas stay readable.
type chain struct {
	*builder
	err error
}

func (c *chain) do(n *gorgonia.Node, err error) *gorgonia.Node {
	if c.err == nil {
		c.err = err
	}
	return n
}

// one calls f unless there was an error.
func (c *chain) one(f func(*gorgonia.Node) (*gorgonia.Node, error), a *gorgonia.Node) *gorgonia.Node {
	if c.err != nil {
		return nil
	}
	return c.do(f(a))
}

// two calls f unless there was an error.
func (c *chain) two(f func(a, b *gorgonia.Node) (*gorgonia.Node, error), a, b *gorgonia.Node) *gorgonia.Node {
	if c.err != nil {
		return nil
	}
	return c.do(f(a, b))
}

type broadcast func(a, b *gorgonia.Node, left, right []byte) (*gorgonia.Node, error)

// over calls f with b broadcast along an axis in which it has length 1.
func (c *chain) over(f broadcast, a, b *gorgonia.Node, axis byte) *gorgonia.Node {
	if c.err != nil {
		return nil
	}
	return c.do(f(a, b, nil, []byte{axis}))
}

func (c *chain) reshape(a *gorgonia.Node, shape ...int) *gorgonia.Node {
	return c.one(func(a *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Reshape(a, shape) }, a)
}

func (c *chain) sum(a *gorgonia.Node, axis int) *gorgonia.Node {
	return c.one(func(a *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Sum(a, axis) }, a)
}

func (c *chain) columns(a *gorgonia.Node, from, to int) *gorgonia.Node {
	return c.one(func(a *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Slice(a, nil, gorgonia.S(from, to)) }, a)
}

func (c *chain) batched(a, b *gorgonia.Node) *gorgonia.Node {
	return c.two(func(a, b *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.BatchedMatMul(a, b) }, a, b)
}

// plus adds a number, which may be 0.
func (c *chain) plus(a *gorgonia.Node, v float64) *gorgonia.Node {
	if v == 0 {
		return a
	}
	return c.two(gorgonia.Add, a, c.number(v))
}

func (c *chain) times(a *gorgonia.Node, v float64) *gorgonia.Node {
	return c.two(gorgonia.HadamardProd, a, c.number(v))
}

func (c *chain) number(v float64) *gorgonia.Node {
	if c.arithmetic() == tensor.Float64 {
		return gorgonia.NewConstant(v)
	}
	return gorgonia.NewConstant(float32(v))
}

// mix is the normalised product [N, M] of x and phi.
func (c *chain) mix(x, phi *gorgonia.Node, m int) *gorgonia.Node {
	k := c.Config.Streams * c.Channels
	flat := c.reshape(x, c.Tokens, k)
	square := c.sum(c.one(gorgonia.Square, flat), 1)
	// Not InverseSqrt, whose gradient is wrong.
	r := c.one(gorgonia.Inverse, c.one(gorgonia.Sqrt, c.plus(c.times(square, 1/float64(k)), c.Config.RMSEps)))
	if c.Config.Phi == mhc.PhiMK {
		phi = c.one(func(a *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Transpose(a) }, phi)
	}
	return c.over(gorgonia.BroadcastHadamardProd, c.two(gorgonia.Mul, flat, phi), c.reshape(r, c.Tokens, 1), 1)
}

// logits are alpha * mix + b; columns names the alpha of each column.
func (c *chain) logits(mix, bias, alpha *gorgonia.Node, columns []int) *gorgonia.Node {
	m, alphas := len(columns), alpha.Shape()[0]
	pick := make([]float64, m*alphas)
	for j, a := range columns {
		pick[j*alphas+a] = 1
	}
	of := c.constant("alpha_of_column", inDtype(c.arithmetic(), pick, tensor.Shape{m, alphas}))
	scale := c.reshape(c.two(gorgonia.Mul, of, alpha), 1, m)
	return c.over(gorgonia.BroadcastAdd, c.over(gorgonia.BroadcastHadamardProd, mix, scale, 0), c.reshape(bias, 1, m), 0)
}

// project is the Sinkhorn projection of a [N, n, n].
func (c *chain) project(a *gorgonia.Node) *gorgonia.Node {
	n, cfg := c.Config.Streams, c.Config.Sinkhorn
	var p *gorgonia.Node
	if cfg.Start == sinkhornpkg.RowSoftmax {
		rows := c.reshape(a, c.Tokens*n, n)
		p = c.one(func(a *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.SoftMax(a, 1) }, rows)
		// The sum comes before the reshape, even of 0: what follows a reshape is
		// written in place into the softmax, which its gradient needs.
		p = c.two(gorgonia.Add, p, c.number(cfg.Eps))
		p = c.reshape(p, c.Tokens, n, n)
	} else {
		p = c.one(gorgonia.Exp, a) // moderate logits need no shift
	}
	for step := range cfg.Steps() {
		axis := 1 + step%2 // columns sum over the first index of a matrix
		shape := []int{c.Tokens, n, n}
		shape[axis] = 1
		s := c.plus(c.reshape(c.sum(p, axis), shape...), cfg.Eps)
		p = c.over(gorgonia.BroadcastHadamardDiv, p, s, byte(axis))
	}
	return p
}

// coefficients are h_pre [N, n], h_post [N, n] and h_res [N, n, n].
func (c *chain) coefficients(x, phi, bias, alpha *gorgonia.Node) (pre, post, res *gorgonia.Node) {
	n, m := c.Config.Streams, c.Config.Width()
	columns := make([]int, m)
	for j := range columns {
		columns[j] = min(j/n, 2)
	}
	logits := c.logits(c.mix(x, phi, m), bias, alpha, columns)
	pre = c.plus(c.one(gorgonia.Sigmoid, c.columns(logits, 0, n)), c.Config.PreEps)
	post = c.times(c.one(gorgonia.Sigmoid, c.columns(logits, n, 2*n)), c.Config.PostMult)
	res = c.project(c.reshape(c.columns(logits, 2*n, m), c.Tokens, n, n))
	return pre, post, res
}

// read is Pre, [N, C].
func (c *chain) read(x, hpre *gorgonia.Node) *gorgonia.Node {
	row := c.reshape(hpre, c.Tokens, 1, c.Config.Streams)
	return c.reshape(c.batched(row, x), c.Tokens, c.Channels)
}

// write is PostRes, [N, n, C].
func (c *chain) write(x, f, hpost, hres *gorgonia.Node) *gorgonia.Node {
	n := c.Config.Streams
	if c.Config.Apply == mhc.ApplyTransposed {
		hres = c.one(func(a *gorgonia.Node) (*gorgonia.Node, error) { return gorgonia.Transpose(a, 0, 2, 1) }, hres)
	}
	written := c.batched(c.reshape(hpost, c.Tokens, n, 1), c.reshape(f, c.Tokens, 1, c.Channels))
	return c.two(gorgonia.Add, c.batched(hres, x), written)
}

func (c *chain) done(outputs ...*gorgonia.Node) error {
	c.outputs = outputs
	return c.err
}

func peerCoeffs(b *builder) error {
	c := &chain{builder: b}
	return c.done(c.coefficients(b.coeffsInputs()))
}

func peerMatMulRMS(b *builder) error {
	c := &chain{builder: b}
	m := b.Config.Width()
	return c.done(c.mix(b.x(), b.phi(m), m))
}

func peerSinkhorn(b *builder) error {
	c := &chain{builder: b}
	n := b.Config.Streams
	return c.done(c.project(b.coefficient("logits", 1, b.Tokens, n, n)))
}

func peerPre(b *builder) error {
	c := &chain{builder: b}
	return c.done(c.read(b.preInputs()))
}

func peerPostRes(b *builder) error {
	c := &chain{builder: b}
	return c.done(c.write(b.postResInputs()))
}

func peerStreams(b *builder) error {
	c := &chain{builder: b}
	x := c.reshape(b.streams("x", b.Tokens, b.Channels), b.Tokens, 1, b.Channels)
	copies := make(gorgonia.Nodes, b.Config.Streams)
	for i := range copies {
		copies[i] = x
	}
	return c.done(c.do(gorgonia.Concat(1, copies...)))
}

func peerHead(b *builder) error {
	c := &chain{builder: b}
	x, phi, bias, alpha := b.headInputs()
	n := b.Config.Streams
	logits := c.logits(c.mix(x, phi, n), bias, alpha, make([]int, n))
	return c.done(c.read(x, c.plus(c.one(gorgonia.Sigmoid, logits), b.Config.PreEps)))
}

func peerLayer(b *builder) error {
	c := &chain{builder: b}
	x, phi, bias, alpha := b.coeffsInputs()
	pre, post, res := c.coefficients(x, phi, bias, alpha)
	return c.done(c.write(x, c.read(x, pre), post, res))
}
