package op

import (
	"fmt"

	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/coeffs"
	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/parallel"
	"github.com/mhc-go/mhc/rmsnorm"
	"github.com/mhc-go/mhc/sinkhorn"
	"github.com/mhc-go/mhc/streams"
)

// cpu computes the operators with the slice packages. S is the dtype of an
// operator's first tensor, P of its second (phi, where there is one), A that of
// the arithmetic: float64 where S is, else float32.
type cpu[S, P dtype.Storage, A dtype.Float] struct{ arena *Arena }

// cpuFor returns the CPU's operators for the dtypes of an operator's tensors.
func cpuFor(ts []tensor.Tensor) (Operators, error) {
	arena := arenaOf(ts)
	s := ts[0].Dtype()
	p := s
	if len(ts) > 1 {
		p = ts[1].Dtype()
	}
	switch {
	case s == tensor.Float64 && p == s:
		return cpu[float64, float64, float64]{arena}, nil
	case s == tensor.Float32 && p == s:
		return cpu[float32, float32, float32]{arena}, nil
	case s == BFloat16 && p == s:
		return cpu[dtype.BFloat16, dtype.BFloat16, float32]{arena}, nil
	case s == BFloat16 && p == tensor.Float32:
		return cpu[dtype.BFloat16, float32, float32]{arena}, nil
	case s == Float16 && p == s:
		return cpu[dtype.Float16, dtype.Float16, float32]{arena}, nil
	case s == Float16 && p == tensor.Float32:
		return cpu[dtype.Float16, float32, float32]{arena}, nil
	}
	return nil, fmt.Errorf("no CPU operator for tensors of %v and %v", s, p)
}

func (c cpu[S, P, A]) Coeffs(in CoeffsInputs, cfg mhc.Config) (CoeffsOutputs, error) {
	lead, n, channels := splitStreams(in.X)
	var out CoeffsOutputs
	kept := coeffs.Outputs[A]{
		Pre:  alloc[A](c.arena, &out.Pre, shapeOf(lead, n)),
		Post: alloc[A](c.arena, &out.Post, shapeOf(lead, n)),
		Res:  alloc[A](c.arena, &out.Res, shapeOf(lead, n, n)),
		Mix:  alloc[A](c.arena, &out.Mix, shapeOf(lead, cfg.Width())),
		R:    alloc[A](c.arena, &out.R, shapeOf(lead)),
	}
	return out, coeffs.Forward(kept, coeffsInputs[S, P, A](in), lead.TotalSize(), channels, cfg)
}

func (c cpu[S, P, A]) CoeffsBackward(in CoeffsInputs, kept CoeffsOutputs, up CoeffsUpstream, cfg mhc.Config) (CoeffsGradients, error) {
	lead, _, channels := splitStreams(in.X)
	var out CoeffsGradients
	grad := coeffs.Gradients[S, P, A]{
		X:     alloc[S](c.arena, &out.X, in.X.Shape()),
		Phi:   alloc[P](c.arena, &out.Phi, in.Phi.Shape()),
		B:     alloc[A](c.arena, &out.B, in.B.Shape()),
		Alpha: alloc[A](c.arena, &out.Alpha, in.Alpha.Shape()),
	}
	err := coeffs.Backward(grad,
		coeffs.Upstream[A]{Pre: data[A](up.Pre), Post: data[A](up.Post), Res: data[A](up.Res)},
		coeffsInputs[S, P, A](in),
		coeffs.Outputs[A]{Mix: data[A](kept.Mix), R: data[A](kept.R)},
		lead.TotalSize(), channels, cfg)
	return out, err
}

func coeffsInputs[S, P dtype.Storage, A dtype.Float](in CoeffsInputs) coeffs.Inputs[S, P, A] {
	return coeffs.Inputs[S, P, A]{X: data[S](in.X), Phi: data[P](in.Phi), B: data[A](in.B), Alpha: data[A](in.Alpha)}
}

func (c cpu[S, P, A]) MatMulRMS(x, phi tensor.Tensor, cfg MatMulRMSConfig) (mix, r tensor.Tensor, err error) {
	lead, d := matMulDims(x.Shape(), phi.Shape(), cfg)
	m, rs := alloc[A](c.arena, &mix, shapeOf(lead, d.M)), alloc[A](c.arena, &r, shapeOf(lead))
	return mix, r, rmsnorm.Forward(m, rs, data[S](x), data[P](phi), d, cfg.RMSEps)
}

func (c cpu[S, P, A]) MatMulRMSBackward(x, phi, mix, r, dmix tensor.Tensor, cfg MatMulRMSConfig) (dx, dphi tensor.Tensor, err error) {
	_, d := matMulDims(x.Shape(), phi.Shape(), cfg)
	gx, gphi := alloc[S](c.arena, &dx, x.Shape()), alloc[P](c.arena, &dphi, phi.Shape())
	return dx, dphi, rmsnorm.Backward(gx, gphi, data[S](x), data[P](phi), data[A](mix), data[A](r), data[A](dmix), d)
}

func (c cpu[S, P, A]) Sinkhorn(logits tensor.Tensor, cfg sinkhorn.Config) (out tensor.Tensor, err error) {
	p := alloc[A](c.arena, &out, logits.Shape())
	return out, sinkhorn.Forward(p, data[A](logits), squareSide(logits), cfg)
}

func (c cpu[S, P, A]) SinkhornBackward(logits, dout tensor.Tensor, cfg sinkhorn.Config) (out tensor.Tensor, err error) {
	d := alloc[A](c.arena, &out, logits.Shape())
	return out, sinkhorn.Backward(d, data[A](logits), data[A](dout), squareSide(logits), cfg)
}

func squareSide(t tensor.Tensor) int { return t.Shape()[t.Dims()-1] }

func (c cpu[S, P, A]) Pre(x, hpre tensor.Tensor) (out tensor.Tensor, err error) {
	lead, _, channels := splitStreams(x)
	o := alloc[S](c.arena, &out, shapeOf(lead, channels))
	return out, streams.Pre(o, data[S](x), data[A](hpre), dimsOf(x))
}

func (c cpu[S, P, A]) PreBackward(x, hpre, g tensor.Tensor) (dx, dhpre tensor.Tensor, err error) {
	gx, gh := alloc[S](c.arena, &dx, x.Shape()), alloc[A](c.arena, &dhpre, hpre.Shape())
	return dx, dhpre, streams.PreBackward(gx, gh, data[S](x), data[A](hpre), data[S](g), dimsOf(x))
}

func (c cpu[S, P, A]) PostRes(in PostResInputs, apply mhc.Apply) (out tensor.Tensor, err error) {
	o := alloc[S](c.arena, &out, in.X.Shape())
	return out, streams.PostRes(o, data[S](in.X), data[S](in.F), data[A](in.HPost), data[A](in.HRes), dimsOf(in.X), apply)
}

func (c cpu[S, P, A]) PostResBackward(in PostResInputs, g tensor.Tensor, apply mhc.Apply) (out PostResInputs, err error) {
	grad := streams.PostResGradients[S, A]{
		X:     alloc[S](c.arena, &out.X, in.X.Shape()),
		F:     alloc[S](c.arena, &out.F, in.F.Shape()),
		HPost: alloc[A](c.arena, &out.HPost, in.HPost.Shape()),
		HRes:  alloc[A](c.arena, &out.HRes, in.HRes.Shape()),
	}
	return out, streams.PostResBackward(grad, data[S](in.X), data[S](in.F), data[A](in.HPost), data[A](in.HRes), data[S](g), dimsOf(in.X), apply)
}

func (c cpu[S, P, A]) Streams(x tensor.Tensor, n int) (out tensor.Tensor, err error) {
	lead, channels := splitLast(x.Shape(), 1)
	o := alloc[S](c.arena, &out, shapeOf(lead, n, channels[0]))
	return out, streams.Expand(o, data[S](x), dimsOf(out))
}

func (c cpu[S, P, A]) StreamsBackward(g tensor.Tensor) (out tensor.Tensor, err error) {
	lead, _, channels := splitStreams(g)
	d := alloc[S](c.arena, &out, shapeOf(lead, channels))
	return out, streams.ExpandBackward(d, data[S](g), dimsOf(g))
}

func (c cpu[S, P, A]) Head(in HeadInputs, cfg mhc.HeadConfig) (out HeadOutputs, err error) {
	lead, n, channels := splitStreams(in.X)
	o := alloc[S](c.arena, &out.Out, shapeOf(lead, channels))
	kept := streams.HeadKept[A]{
		Mix: alloc[A](c.arena, &out.Mix, shapeOf(lead, n)),
		R:   alloc[A](c.arena, &out.R, shapeOf(lead)),
	}
	return out, streams.Head(o, kept, headInputs[S, P, A](in), dimsOf(in.X), cfg)
}

func (c cpu[S, P, A]) HeadBackward(in HeadInputs, kept HeadOutputs, g tensor.Tensor, cfg mhc.HeadConfig) (out HeadInputs, err error) {
	grad := streams.HeadInputs[S, P, A]{
		X:     alloc[S](c.arena, &out.X, in.X.Shape()),
		Phi:   alloc[P](c.arena, &out.Phi, in.Phi.Shape()),
		B:     alloc[A](c.arena, &out.B, in.B.Shape()),
		Alpha: alloc[A](c.arena, &out.Alpha, in.Alpha.Shape()),
	}
	k := streams.HeadKept[A]{Mix: data[A](kept.Mix), R: data[A](kept.R)}
	return out, streams.HeadBackward(grad, headInputs[S, P, A](in), k, data[S](g), dimsOf(in.X), cfg)
}

func headInputs[S, P dtype.Storage, A dtype.Float](in HeadInputs) streams.HeadInputs[S, P, A] {
	return streams.HeadInputs[S, P, A]{X: data[S](in.X), Phi: data[P](in.Phi), B: data[A](in.B), Alpha: data[A](in.Alpha)}
}

func (c cpu[S, P, A]) Cast(x tensor.Tensor, to tensor.Dtype) (out tensor.Tensor, err error) {
	switch to {
	case tensor.Float64:
		sumTo[float64, S, A](c.arena, &out, x)
	case tensor.Float32:
		sumTo[float32, S, A](c.arena, &out, x)
	case BFloat16:
		sumTo[dtype.BFloat16, S, A](c.arena, &out, x)
	case Float16:
		sumTo[dtype.Float16, S, A](c.arena, &out, x)
	default:
		err = fmt.Errorf("cannot cast to %v", to)
	}
	return out, err
}

func (c cpu[S, P, A]) AddAll(terms ...tensor.Tensor) (out tensor.Tensor, err error) {
	sumTo[S, S, A](c.arena, &out, terms...)
	return out, nil
}

// sumTo makes the sum of terms in out, computed in A and rounded to D once.
func sumTo[D, S dtype.Storage, A dtype.Float](arena *Arena, out *tensor.Tensor, terms ...tensor.Tensor) {
	const block, chunk = 1 << 15, 1 << 10 // elements a goroutine takes, and those in its buffers
	dst := alloc[D](arena, out, terms[0].Shape())
	parallel.Blocks(len(dst), block, func(_, lo, hi int) {
		var sum, term [chunk]A
		for ; lo < hi; lo += chunk {
			end := min(lo+chunk, hi)
			s, w := sum[:end-lo], term[:end-lo]
			dtype.Widen(s, data[S](terms[0])[lo:end])
			for _, t := range terms[1:] {
				dtype.Widen(w, data[S](t)[lo:end])
				for i, v := range w {
					s[i] += v
				}
			}
			dtype.Narrow(dst[lo:end], s)
		}
	})
}

// data returns the elements of a contiguous tensor; nil for a nil one.
func data[T dtype.Storage](t tensor.Tensor) []T {
	if t == nil {
		return nil
	}
	return t.Data().([]T)
}

// dimsOf are the sizes of x [..., n, C].
func dimsOf(x tensor.Tensor) streams.Dims {
	lead, n, channels := splitStreams(x)
	return streams.Dims{Tokens: lead.TotalSize(), Streams: n, Channels: channels}
}

func splitStreams(x tensor.Tensor) (lead tensor.Shape, n, channels int) {
	lead, last := splitLast(x.Shape(), 2)
	return lead, last[0], last[1]
}
