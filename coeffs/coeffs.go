// Package coeffs computes the coefficients of one mHC layer on plain slices:
// the fused matmul and RMS of package rmsnorm, the sigmoids, and the Sinkhorn
// projection of package sinkhorn, with one fused backward (arXiv 2512.24880, eq.
// 14-19).
package coeffs

import (
	"math"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/rmsnorm"
	"github.com/mhc-go/mhc/sinkhorn"
)

// Inputs are the operands of the coefficients. A is float64 where S is, else
// float32.
type Inputs[S, P dtype.Storage, A dtype.Float] struct {
	X     []S // [N, n, C], the streams
	Phi   []P // [K, M], or [M, K] where the Config says so; of X's type or A
	B     []A // [M]
	Alpha []A // [3]: pre, post, res
}

// Outputs are the coefficients, and what the backward needs of the forward.
type Outputs[A dtype.Float] struct {
	Pre  []A // [N, n]
	Post []A // [N, n]
	Res  []A // [N, n, n], row-major
	Mix  []A // [N, M]
	R    []A // [N]
}

// Upstream holds the gradients of the loss by the coefficients. A nil one is
// zero and its work is skipped.
type Upstream[A dtype.Float] struct {
	Pre, Post, Res []A
}

// Gradients of the loss by the inputs, in the inputs' layouts. A nil X or Phi is
// not computed.
type Gradients[S, P dtype.Storage, A dtype.Float] struct {
	X     []S
	Phi   []P
	B     []A
	Alpha []A
}

// Forward computes the coefficients of tokens tokens of cfg.Streams streams of
// channels channels. A nil Pre, Post or Res of out is not computed; Mix and R
// always are.
func Forward[S, P dtype.Storage, A dtype.Float](out Outputs[A], in Inputs[S, P, A], tokens, channels int, cfg mhc.Config) error {
	n, m := cfg.Streams, cfg.Width()
	if err := rmsnorm.Forward(out.Mix, out.R, in.X, in.Phi, dims(tokens, channels, cfg), cfg.RMSEps); err != nil {
		return err
	}
	logits := make([]A, tokens*m)
	toLogits(logits, out.Mix, in.B, in.Alpha, n)
	res := make([]A, 0, tokens*n*n)
	for t := range tokens {
		l := logits[t*m : (t+1)*m]
		for i := range n {
			if out.Pre != nil {
				out.Pre[t*n+i] = sigmoid(l[i]) + A(cfg.PreEps)
			}
			if out.Post != nil {
				out.Post[t*n+i] = A(cfg.PostMult) * sigmoid(l[n+i])
			}
		}
		res = append(res, l[2*n:]...)
	}
	if out.Res == nil {
		return nil
	}
	return sinkhorn.Forward(out.Res, res, n, cfg.Sinkhorn)
}

// Backward computes the gradients of the inputs from up and from out.Mix and
// out.R, the only parts of the forward's outputs that it reads.
func Backward[S, P dtype.Storage, A dtype.Float](grad Gradients[S, P, A], up Upstream[A], in Inputs[S, P, A], out Outputs[A], tokens, channels int, cfg mhc.Config) error {
	n, m := cfg.Streams, cfg.Width()
	logits, g := make([]A, tokens*m), make([]A, tokens*m)
	toLogits(logits, out.Mix, in.B, in.Alpha, n)
	res, dres := make([]A, tokens*n*n), make([]A, tokens*n*n)
	for t := range tokens {
		copy(res[t*n*n:], logits[t*m+2*n:(t+1)*m])
	}
	if up.Res != nil {
		if err := sinkhorn.Backward(dres, res, up.Res, n, cfg.Sinkhorn); err != nil {
			return err
		}
	}
	db, dalpha := make([]float64, m), make([]float64, 3)
	for t := range tokens {
		l, g := logits[t*m:(t+1)*m], g[t*m:(t+1)*m]
		for i := range n {
			if up.Pre != nil {
				s := sigmoid(l[i])
				g[i] = up.Pre[t*n+i] * s * (1 - s)
			}
			if up.Post != nil {
				s := sigmoid(l[n+i])
				g[n+i] = up.Post[t*n+i] * A(cfg.PostMult) * s * (1 - s)
			}
		}
		copy(g[2*n:], dres[t*n*n:(t+1)*n*n])
		for j := range g {
			a := group(j, n)
			db[j] += float64(g[j])
			dalpha[a] += float64(g[j]) * float64(out.Mix[t*m+j])
			g[j] *= in.Alpha[a]
		}
	}
	dtype.Narrow(grad.B, db)
	dtype.Narrow(grad.Alpha, dalpha)
	return rmsnorm.Backward(grad.X, grad.Phi, in.X, in.Phi, out.Mix, out.R, g, dims(tokens, channels, cfg))
}

func dims(tokens, channels int, cfg mhc.Config) rmsnorm.Dims {
	return rmsnorm.Dims{Tokens: tokens, K: cfg.Streams * channels, M: cfg.Width(), Transposed: cfg.Phi == mhc.PhiMK}
}

// group is the index in alpha of column j.
func group(j, n int) int { return min(j/n, 2) }

func toLogits[A dtype.Float](logits, mix, b, alpha []A, n int) {
	for i, v := range mix {
		j := i % len(b)
		logits[i] = alpha[group(j, n)]*v + b[j]
	}
}

func sigmoid[A dtype.Float](x A) A { return A(1 / (1 + math.Exp(-float64(x)))) }
