package cuda

import (
	"errors"
	"fmt"
	"math"

	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/cuda/plan"
	"github.com/mhc-go/mhc/op"
	"github.com/mhc-go/mhc/sinkhorn"
)

var _ op.Engine = (*Engine)(nil)

// Coeffs computes the coefficients of in.X in two launches, see [op.Coeffs].
func (e *Engine) Coeffs(in op.CoeffsInputs, cfg mhc.Config) (op.CoeffsOutputs, error) {
	lead, count, last := tokens(in.X.Shape(), 2)
	n := last[0]
	c := e.call()
	o := plan.CoeffsForward{
		Tokens: count, Streams: n, Channels: last[1], PhiTransposed: cfg.Phi == mhc.PhiMK,
		RMSEps: cfg.RMSEps, PreEps: cfg.PreEps, PostMult: cfg.PostMult, Sinkhorn: cfg.Sinkhorn,
	}
	o.XType = c.read("x", &o.X, in.X)
	o.PhiType = c.read("phi", &o.Phi, in.Phi)
	c.read32("b", &o.B, in.B)
	c.read32("alpha", &o.Alpha, in.Alpha)
	out := op.CoeffsOutputs{
		Pre:  c.write(&o.HPre, tensor.Float32, shape(lead, n)...),
		Post: c.write(&o.HPost, tensor.Float32, shape(lead, n)...),
		Res:  c.write(&o.HRes, tensor.Float32, shape(lead, n, n)...),
		Mix:  c.write(&o.Mix, tensor.Float32, shape(lead, cfg.Width())...),
		R:    c.write(&o.R, tensor.Float32, shape(lead)...),
	}
	if err := c.run(&o); err != nil {
		return op.CoeffsOutputs{}, err
	}
	return out, nil
}

// CoeffsBackward computes the gradients of in.
func (e *Engine) CoeffsBackward(in op.CoeffsInputs, kept op.CoeffsOutputs, up op.CoeffsUpstream, cfg mhc.Config) (op.CoeffsGradients, error) {
	_, count, last := tokens(in.X.Shape(), 2)
	c := e.call()
	o := plan.CoeffsBackward{
		Tokens: count, Streams: last[0], Channels: last[1], PhiTransposed: cfg.Phi == mhc.PhiMK,
		PostMult: cfg.PostMult, Sinkhorn: cfg.Sinkhorn,
	}
	o.XType = c.read("x", &o.X, in.X)
	o.PhiType = c.read("phi", &o.Phi, in.Phi)
	o.DPhiType = o.PhiType
	c.read32("b", &o.B, in.B)
	c.read32("alpha", &o.Alpha, in.Alpha)
	c.read32("mix", &o.Mix, kept.Mix)
	c.read32("r", &o.R, kept.R)
	c.read32("the gradient of h_pre", &o.GPre, up.Pre)
	c.read32("the gradient of h_post", &o.GPost, up.Post)
	c.read32("the gradient of h_res", &o.GRes, up.Res)
	out := op.CoeffsGradients{
		X:     c.write(&o.DX, in.X.Dtype(), in.X.Shape()...),
		Phi:   c.write(&o.DPhi, in.Phi.Dtype(), in.Phi.Shape()...),
		B:     c.write(&o.DB, tensor.Float32, in.B.Shape()...),
		Alpha: c.write(&o.DAlpha, tensor.Float32, in.Alpha.Shape()...),
	}
	if err := c.run(&o); err != nil {
		return op.CoeffsGradients{}, err
	}
	return out, nil
}

// product are the sizes of x [..., K] or [..., n, C] times phi.
func product(x, phi tensor.Shape, layout mhc.PhiLayout) (lead tensor.Shape, count, k, m int64, transposed bool) {
	k, m = int64(phi[0]), int64(phi[1])
	if transposed = layout == mhc.PhiMK; transposed {
		k, m = m, k
	}
	last := 1
	if int64(x[len(x)-1]) != k {
		last = 2
	}
	lead, count, _ = tokens(x, last)
	return lead, count, k, m, transposed
}

// MatMulRMS computes mix and r of x and phi, see [op.MatMulRMS].
func (e *Engine) MatMulRMS(x, phi tensor.Tensor, cfg op.MatMulRMSConfig) (mix, r tensor.Tensor, err error) {
	c := e.call()
	o := plan.MatMulRMSForward{RMSEps: cfg.RMSEps}
	var lead tensor.Shape
	lead, o.Tokens, o.K, o.M, o.PhiTransposed = product(x.Shape(), phi.Shape(), cfg.Phi)
	o.XType = c.read("x", &o.X, x)
	o.PhiType = c.read("phi", &o.Phi, phi)
	mix = c.write(&o.Mix, tensor.Float32, shape(lead, int(o.M))...)
	r = c.write(&o.R, tensor.Float32, shape(lead)...)
	if err := c.run(&o); err != nil {
		return nil, nil, err
	}
	return mix, r, nil
}

// MatMulRMSBackward computes the gradients of x and phi from that of mix.
func (e *Engine) MatMulRMSBackward(x, phi, mix, r, dmix tensor.Tensor, cfg op.MatMulRMSConfig) (dx, dphi tensor.Tensor, err error) {
	c := e.call()
	o := plan.MatMulRMSBackward{}
	_, o.Tokens, o.K, o.M, o.PhiTransposed = product(x.Shape(), phi.Shape(), cfg.Phi)
	o.XType = c.read("x", &o.X, x)
	o.PhiType = c.read("phi", &o.Phi, phi)
	o.DPhiType = o.PhiType
	c.read32("mix", &o.Mix, mix)
	c.read32("r", &o.R, r)
	c.read32("the gradient of mix", &o.GMix, dmix)
	dx = c.write(&o.DX, x.Dtype(), x.Shape()...)
	dphi = c.write(&o.DPhi, phi.Dtype(), phi.Shape()...)
	if err := c.run(&o); err != nil {
		return nil, nil, err
	}
	return dx, dphi, nil
}

// Sinkhorn projects logits, see [op.Sinkhorn].
func (e *Engine) Sinkhorn(logits tensor.Tensor, cfg sinkhorn.Config) (tensor.Tensor, error) {
	_, count, last := tokens(logits.Shape(), 2)
	c := e.call()
	o := plan.SinkhornForward{Batch: count, N: last[0], Sinkhorn: cfg}
	c.read32("logits", &o.A, logits)
	out := c.write(&o.Out, tensor.Float32, logits.Shape()...)
	if err := c.run(&o); err != nil {
		return nil, err
	}
	return out, nil
}

// SinkhornBackward computes the gradient of logits from that of the projection.
func (e *Engine) SinkhornBackward(logits, dout tensor.Tensor, cfg sinkhorn.Config) (tensor.Tensor, error) {
	_, count, last := tokens(logits.Shape(), 2)
	c := e.call()
	o := plan.SinkhornBackward{Batch: count, N: last[0], Sinkhorn: cfg}
	c.read32("logits", &o.A, logits)
	c.read32("the gradient of the projection", &o.G, dout)
	out := c.write(&o.DA, tensor.Float32, logits.Shape()...)
	if err := c.run(&o); err != nil {
		return nil, err
	}
	return out, nil
}

// Pre reads the streams, see [op.Pre].
func (e *Engine) Pre(x, hpre tensor.Tensor) (tensor.Tensor, error) {
	lead, count, last := tokens(x.Shape(), 2)
	c := e.call()
	o := plan.PreForward{Tokens: count, Streams: last[0], Channels: last[1]}
	o.XType = c.read("x", &o.X, x)
	c.read32("h_pre", &o.HPre, hpre)
	out := c.write(&o.Out, x.Dtype(), shape(lead, last[1])...)
	if err := c.run(&o); err != nil {
		return nil, err
	}
	return out, nil
}

// PreBackward computes the gradients of x and hpre.
func (e *Engine) PreBackward(x, hpre, g tensor.Tensor) (dx, dhpre tensor.Tensor, err error) {
	_, count, last := tokens(x.Shape(), 2)
	c := e.call()
	o := plan.PreBackward{Tokens: count, Streams: last[0], Channels: last[1]}
	o.XType = c.read("x", &o.X, x)
	c.read32("h_pre", &o.HPre, hpre)
	c.like("the gradient", &o.G, g, o.XType)
	dx = c.write(&o.DX, x.Dtype(), x.Shape()...)
	dhpre = c.write(&o.DHPre, tensor.Float32, hpre.Shape()...)
	if err := c.run(&o); err != nil {
		return nil, nil, err
	}
	return dx, dhpre, nil
}

// PostRes mixes the streams and writes f to them, see [op.PostRes].
func (e *Engine) PostRes(in op.PostResInputs, apply mhc.Apply) (tensor.Tensor, error) {
	_, count, last := tokens(in.X.Shape(), 2)
	c := e.call()
	o := plan.PostResForward{Tokens: count, Streams: last[0], Channels: last[1], Transposed: apply == mhc.ApplyTransposed}
	o.XType = c.read("x", &o.X, in.X)
	c.like("f", &o.F, in.F, o.XType)
	c.read32("h_post", &o.HPost, in.HPost)
	c.read32("h_res", &o.HRes, in.HRes)
	out := c.write(&o.Out, in.X.Dtype(), in.X.Shape()...)
	if err := c.run(&o); err != nil {
		return nil, err
	}
	return out, nil
}

// PostResBackward computes the gradients of in.
func (e *Engine) PostResBackward(in op.PostResInputs, g tensor.Tensor, apply mhc.Apply) (op.PostResInputs, error) {
	_, count, last := tokens(in.X.Shape(), 2)
	c := e.call()
	o := plan.PostResBackward{Tokens: count, Streams: last[0], Channels: last[1], Transposed: apply == mhc.ApplyTransposed}
	o.XType = c.read("x", &o.X, in.X)
	c.like("f", &o.F, in.F, o.XType)
	c.read32("h_post", &o.HPost, in.HPost)
	c.read32("h_res", &o.HRes, in.HRes)
	c.like("the gradient", &o.G, g, o.XType)
	out := op.PostResInputs{
		X:     c.write(&o.DX, in.X.Dtype(), in.X.Shape()...),
		F:     c.write(&o.DF, in.F.Dtype(), in.F.Shape()...),
		HPost: c.write(&o.DHPost, tensor.Float32, in.HPost.Shape()...),
		HRes:  c.write(&o.DHRes, tensor.Float32, in.HRes.Shape()...),
	}
	if err := c.run(&o); err != nil {
		return op.PostResInputs{}, err
	}
	return out, nil
}

// Streams copies x to n streams, see [op.Streams].
func (e *Engine) Streams(x tensor.Tensor, n int) (tensor.Tensor, error) {
	lead, count, last := tokens(x.Shape(), 1)
	c := e.call()
	o := plan.StreamsForward{Tokens: count, Streams: n, Channels: last[0]}
	o.XType = c.read("x", &o.X, x)
	out := c.write(&o.Out, x.Dtype(), shape(lead, n, last[0])...)
	if err := c.run(&o); err != nil {
		return nil, err
	}
	return out, nil
}

// StreamsBackward sums g over the streams.
func (e *Engine) StreamsBackward(g tensor.Tensor) (tensor.Tensor, error) {
	lead, count, last := tokens(g.Shape(), 2)
	c := e.call()
	o := plan.StreamsBackward{Tokens: count, Streams: last[0], Channels: last[1]}
	o.XType = c.read("the gradient", &o.G, g)
	out := c.write(&o.DX, g.Dtype(), shape(lead, last[1])...)
	if err := c.run(&o); err != nil {
		return nil, err
	}
	return out, nil
}

// Head computes the way out of a stack, see [op.Head].
func (e *Engine) Head(in op.HeadInputs, cfg mhc.HeadConfig) (op.HeadOutputs, error) {
	lead, count, last := tokens(in.X.Shape(), 2)
	n := last[0]
	c := e.call()
	o := plan.HeadForward{
		Tokens: count, Streams: n, Channels: last[1], PhiTransposed: cfg.Phi == mhc.PhiMK,
		RMSEps: cfg.RMSEps, PreEps: cfg.PreEps,
	}
	o.XType = c.read("x", &o.X, in.X)
	o.PhiType = c.read("phi", &o.Phi, in.Phi)
	c.read32("b", &o.B, in.B)
	c.read32("alpha", &o.Alpha, in.Alpha)
	out := op.HeadOutputs{
		Out: c.write(&o.Out, in.X.Dtype(), shape(lead, last[1])...),
		Mix: c.write(&o.Mix, tensor.Float32, shape(lead, n)...),
		R:   c.write(&o.R, tensor.Float32, shape(lead)...),
	}
	c.write(&o.W, tensor.Float32, shape(lead, n)...)
	if err := c.run(&o); err != nil {
		return op.HeadOutputs{}, err
	}
	return out, nil
}

// HeadBackward computes the gradients of in.
func (e *Engine) HeadBackward(in op.HeadInputs, kept op.HeadOutputs, g tensor.Tensor, cfg mhc.HeadConfig) (op.HeadInputs, error) {
	_, count, last := tokens(in.X.Shape(), 2)
	c := e.call()
	o := plan.HeadBackward{
		Tokens: count, Streams: last[0], Channels: last[1], PhiTransposed: cfg.Phi == mhc.PhiMK,
	}
	o.XType = c.read("x", &o.X, in.X)
	o.PhiType = c.read("phi", &o.Phi, in.Phi)
	o.DPhiType = o.PhiType
	c.read32("b", &o.B, in.B)
	c.read32("alpha", &o.Alpha, in.Alpha)
	c.read32("mix", &o.Mix, kept.Mix)
	c.read32("r", &o.R, kept.R)
	if c.err == nil {
		c.read32("w", &o.W, headWeights(in, kept, cfg))
	}
	c.like("the gradient", &o.G, g, o.XType)
	out := op.HeadInputs{
		X:     c.write(&o.DX, in.X.Dtype(), in.X.Shape()...),
		Phi:   c.write(&o.DPhi, in.Phi.Dtype(), in.Phi.Shape()...),
		B:     c.write(&o.DB, tensor.Float32, in.B.Shape()...),
		Alpha: c.write(&o.DAlpha, tensor.Float32, in.Alpha.Shape()...),
	}
	if err := c.run(&o); err != nil {
		return op.HeadInputs{}, err
	}
	return out, nil
}

// headWeights are w = sigmoid(alpha*mix + b) + pre_eps, which are not kept.
func headWeights(in op.HeadInputs, kept op.HeadOutputs, cfg mhc.HeadConfig) tensor.Tensor {
	mix, b, alpha := kept.Mix.Data().([]float32), in.B.Data().([]float32), in.Alpha.Data().([]float32)[0]
	w := make([]float32, len(mix))
	for i, m := range mix {
		w[i] = float32(1/(1+math.Exp(-float64(alpha*m+b[i%len(b)]))) + cfg.PreEps)
	}
	return tensor.New(tensor.WithShape(kept.Mix.Shape()...), tensor.WithBacking(w))
}

// Cast converts x to another dtype, rounding to nearest even.
func (e *Engine) Cast(x tensor.Tensor, to tensor.Dtype) (tensor.Tensor, error) {
	c := e.call()
	o := plan.Cast{Count: int64(x.Shape().TotalSize())}
	o.From = c.read("x", &o.In, x)
	out := c.write(&o.Out, to, x.Shape()...)
	if c.err == nil {
		_, o.To, c.err = contents(out)
	}
	if err := c.run(&o); err != nil {
		return nil, err
	}
	return out, nil
}

// AddAll has no kernel: adding host tensors is sooner done than staging them.
func (e *Engine) AddAll(...tensor.Tensor) (tensor.Tensor, error) {
	return nil, fmt.Errorf("cuda: AddAll: %w", errors.ErrUnsupported)
}
