// Package streams applies the coefficients of an mHC layer on plain slices: it
// reads the n residual streams (Pre), writes and mixes them (PostRes), makes
// them out of one stream (Expand) and reads them at the end of a stack (Head).
package streams

import (
	"math"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/rmsnorm"
)

// Dims are the sizes of a batch of streams.
type Dims struct {
	Tokens   int // N; 0 is valid
	Streams  int // n
	Channels int // C
}

// Pre computes xin [N, C], xin[c] = sum_i hpre[i] x[i,c], from x [N, n, C] and
// hpre [N, n].
func Pre[S dtype.Storage, A dtype.Float](xin, x []S, hpre []A, d Dims) error {
	return each(d, func(t int) {
		w := wide[A](x, t, d)
		out := make([]A, d.Channels)
		for i := range d.Streams {
			for c := range out {
				out[c] += hpre[t*d.Streams+i] * w[i*d.Channels+c]
			}
		}
		dtype.Narrow(xin[t*d.Channels:(t+1)*d.Channels], out)
	})
}

// PreBackward computes dx [N, n, C] and dhpre [N, n] from g [N, C], the gradient
// by xin. Either result may be nil, and its work is skipped.
func PreBackward[S dtype.Storage, A dtype.Float](dx []S, dhpre []A, x []S, hpre []A, g []S, d Dims) error {
	one := d
	one.Streams = 1
	return each(d, func(t int) {
		w, g := wide[A](x, t, d), wide[A](g, t, one)
		for i := range d.Streams {
			sum := A(0)
			for c, v := range g {
				sum += v * w[i*d.Channels+c]
				w[i*d.Channels+c] = hpre[t*d.Streams+i] * v
			}
			if dhpre != nil {
				dhpre[t*d.Streams+i] = sum
			}
		}
		if dx != nil {
			dtype.Narrow(dx[t*len(w):(t+1)*len(w)], w)
		}
	})
}

// PostRes computes xout [N, n, C], xout[o,c] = sum_i hres[o,i] x[i,c] + hpost[o]
// f[c], from x [N, n, C], f [N, C], hpost [N, n] and hres [N, n, n]. With
// [mhc.ApplyTransposed] hres[i,o] stands for hres[o,i].
func PostRes[S dtype.Storage, A dtype.Float](xout, x, f []S, hpost, hres []A, d Dims, apply mhc.Apply) error {
	n, ch := d.Streams, d.Channels
	one := d
	one.Streams = 1
	return each(d, func(t int) {
		w, f := wide[A](x, t, d), wide[A](f, t, one)
		out := make([]A, n*ch)
		for o := range n {
			for c := range ch {
				s := hpost[t*n+o] * f[c]
				for i := range n {
					s += hres[t*n*n+entry(o, i, n, apply)] * w[i*ch+c]
				}
				out[o*ch+c] = s
			}
		}
		dtype.Narrow(xout[t*n*ch:(t+1)*n*ch], out)
	})
}

// PostResGradients are the results of PostResBackward; a nil one is not
// computed.
type PostResGradients[S dtype.Storage, A dtype.Float] struct {
	X     []S // [N, n, C]
	F     []S // [N, C]
	HPost []A // [N, n]
	HRes  []A // [N, n, n]
}

// PostResBackward computes the gradients of PostRes's operands from g [N, n, C],
// the gradient by xout.
func PostResBackward[S dtype.Storage, A dtype.Float](grad PostResGradients[S, A], x, f []S, hpost, hres []A, g []S, d Dims, apply mhc.Apply) error {
	n, ch := d.Streams, d.Channels
	one := d
	one.Streams = 1
	return each(d, func(t int) {
		w, f, g := wide[A](x, t, d), wide[A](f, t, one), wide[A](g, t, d)
		dx, df := make([]A, n*ch), make([]A, ch)
		for o := range n {
			post := A(0)
			for c := range ch {
				post += g[o*ch+c] * f[c]
				df[c] += hpost[t*n+o] * g[o*ch+c]
			}
			if grad.HPost != nil {
				grad.HPost[t*n+o] = post
			}
			for i := range n {
				k := t*n*n + entry(o, i, n, apply)
				s := A(0)
				for c := range ch {
					s += g[o*ch+c] * w[i*ch+c]
					dx[i*ch+c] += hres[k] * g[o*ch+c]
				}
				if grad.HRes != nil {
					grad.HRes[k] = s
				}
			}
		}
		if grad.X != nil {
			dtype.Narrow(grad.X[t*n*ch:(t+1)*n*ch], dx)
		}
		if grad.F != nil {
			dtype.Narrow(grad.F[t*ch:(t+1)*ch], df)
		}
	})
}

// Expand copies x [N, C] to each of the n streams of out [N, n, C].
func Expand[S dtype.Storage](out, x []S, d Dims) error {
	return each(d, func(t int) {
		for i := range d.Streams {
			copy(out[(t*d.Streams+i)*d.Channels:], x[t*d.Channels:(t+1)*d.Channels])
		}
	})
}

// ExpandBackward sums g [N, n, C] over the streams into dx [N, C].
func ExpandBackward[S dtype.Storage](dx, g []S, d Dims) error {
	ones := make([]float32, d.Tokens*d.Streams)
	for i := range ones {
		ones[i] = 1
	}
	if _, ok := any(g).([]float64); ok {
		wide := make([]float64, len(ones))
		for i := range wide {
			wide[i] = 1
		}
		return Pre(dx, g, wide, d)
	}
	return Pre(dx, g, ones, d)
}

// HeadInputs are the operands of the way out of a stack.
type HeadInputs[S, P dtype.Storage, A dtype.Float] struct {
	X     []S // [N, n, C]
	Phi   []P // [K, n], or [n, K] where the config says so
	B     []A // [n]
	Alpha []A // [1]
}

// HeadKept is what HeadBackward needs of Head: mix [N, n] and r [N].
type HeadKept[A dtype.Float] struct{ Mix, R []A }

// Head computes out [N, C], out[c] = sum_i w[i] x[i,c] with w = sigmoid(alpha *
// r * (X phi) + b) + pre_eps.
func Head[S, P dtype.Storage, A dtype.Float](out []S, kept HeadKept[A], in HeadInputs[S, P, A], d Dims, cfg mhc.HeadConfig) error {
	if err := rmsnorm.Forward(kept.Mix, kept.R, in.X, in.Phi, headDims(d, cfg), cfg.RMSEps); err != nil {
		return err
	}
	w := make([]A, len(kept.Mix))
	for i, v := range kept.Mix {
		w[i] = sigmoid(in.Alpha[0]*v+in.B[i%d.Streams]) + A(cfg.PreEps)
	}
	return Pre(out, in.X, w, d)
}

// HeadBackward computes the gradients of Head's operands (grad has their
// layouts) from g [N, C], the gradient by out.
func HeadBackward[S, P dtype.Storage, A dtype.Float](grad HeadInputs[S, P, A], in HeadInputs[S, P, A], kept HeadKept[A], g []S, d Dims, cfg mhc.HeadConfig) error {
	w, s, dw := make([]A, len(kept.Mix)), make([]A, len(kept.Mix)), make([]A, len(kept.Mix))
	for i, v := range kept.Mix {
		s[i] = sigmoid(in.Alpha[0]*v + in.B[i%d.Streams])
		w[i] = s[i] + A(cfg.PreEps)
	}
	direct := make([]S, len(in.X))
	if err := PreBackward(direct, dw, in.X, w, g, d); err != nil {
		return err
	}
	db := make([]float64, d.Streams)
	dalpha := make([]float64, 1)
	for i := range dw {
		l := dw[i] * s[i] * (1 - s[i])
		db[i%d.Streams] += float64(l)
		dalpha[0] += float64(l) * float64(kept.Mix[i])
		dw[i] = l * in.Alpha[0]
	}
	dtype.Narrow(grad.B, db)
	dtype.Narrow(grad.Alpha, dalpha)
	if err := rmsnorm.Backward(grad.X, grad.Phi, in.X, in.Phi, kept.Mix, kept.R, dw, headDims(d, cfg)); err != nil {
		return err
	}
	a, b := make([]A, len(in.X)), make([]A, len(in.X))
	dtype.Widen(a, grad.X)
	dtype.Widen(b, direct)
	for i := range a {
		a[i] += b[i]
	}
	dtype.Narrow(grad.X, a)
	return nil
}

func headDims(d Dims, cfg mhc.HeadConfig) rmsnorm.Dims {
	return rmsnorm.Dims{Tokens: d.Tokens, K: d.Streams * d.Channels, M: d.Streams, Transposed: cfg.Phi == mhc.PhiMK}
}

func each(d Dims, f func(t int)) error {
	for t := range d.Tokens {
		f(t)
	}
	return nil
}

func wide[A dtype.Float, S dtype.Storage](x []S, t int, d Dims) []A {
	k := d.Streams * d.Channels
	w := make([]A, k)
	dtype.Widen(w, x[t*k:(t+1)*k])
	return w
}

func entry(o, i, n int, apply mhc.Apply) int {
	if apply == mhc.ApplyTransposed {
		return i*n + o
	}
	return o*n + i
}

func sigmoid[A dtype.Float](x A) A { return A(1 / (1 + math.Exp(-float64(x)))) }
