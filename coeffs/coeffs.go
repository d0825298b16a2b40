// Package coeffs computes the coefficients of one mHC layer on plain slices
// (arXiv 2512.24880, eq. 14-19). With K = n*C numbers a token and M = n*n + 2*n
// columns:
//
//	mix, r = the matmul and RMS of package rmsnorm           [N, M], [N]
//	h_pre  = sigmoid(alpha_pre * mix + b) + pre_eps          [N, n], columns 0..n of mix
//	h_post = post_mult * sigmoid(alpha_post * mix + b)       [N, n], columns n..2n
//	h_res  = Sinkhorn(alpha_res * mix + b)                   [N, n, n], the rest, row-major
//
// Everything behind the matmul is done block by block while mix is in cache: the
// logits are never stored. The backward recomputes them from mix, the only part of
// the forward's results, with r, that it needs.
//
// A result depends on the token alone, a sum over tokens on the shape alone: the
// bits are the same whatever GOMAXPROCS is.
package coeffs

import (
	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/parallel"
	"github.com/mhc-go/mhc/internal/scratch"
	"github.com/mhc-go/mhc/rmsnorm"
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
	Pre  []A // [N, n]
	Post []A // [N, n]
	Res  []A // [N, n, n]
}

// Gradients of the loss by the inputs, in the inputs' layouts. A nil one is not
// computed.
type Gradients[S, P dtype.Storage, A dtype.Float] struct {
	X     []S
	Phi   []P
	B     []A
	Alpha []A
}

// Forward computes the coefficients of tokens tokens of cfg.Streams streams of
// channels channels. A nil Pre, Post or Res of out is not computed; Mix and R
// always are. No tokens are valid: nothing is written. An error names the setting
// or the argument that is wrong, and then nothing is written.
func Forward[S, P dtype.Storage, A dtype.Float](out Outputs[A], in Inputs[S, P, A], tokens, channels int, cfg mhc.Config) error {
	s, err := sizesOf(tokens, channels, cfg)
	if err != nil {
		return err
	}
	if err := check(append(inputs(in, s),
		required("Mix", out.Mix, s.mix), required("R", out.R, s.tokens),
		optional("Pre", out.Pre, s.vector), optional("Post", out.Post, s.vector), optional("Res", out.Res, s.res))); err != nil {
		return err
	}
	if err := rmsnorm.Forward(out.Mix, out.R, in.X, in.Phi, s.dims(cfg), cfg.RMSEps); err != nil {
		return err
	}
	if out.Pre != nil || out.Post != nil || out.Res != nil {
		fromMix(out, in.B, in.Alpha, tokens, cfg)
	}
	return nil
}

// fromMix computes the coefficients from out.Mix.
func fromMix[A dtype.Float](out Outputs[A], bias, alpha []A, tokens int, cfg mhc.Config) {
	parallel.Blocks(tokens, projection(cfg).Chunk(), func(_, lo, hi int) {
		b := borrow(&forwards, bias, alpha, cfg, false)
		defer b.giveBack(&forwards)
		b.forward(out, lo, hi)
	})
}

// Backward computes the gradients of the inputs from up and from out.Mix and
// out.R, the only parts of the forward's results that it reads. Without any
// upstream gradient, and without tokens, the parameters' gradients are zero, and
// so is X's. An error names the setting or the argument that is wrong, and then
// nothing is written.
func Backward[S, P dtype.Storage, A dtype.Float](grad Gradients[S, P, A], up Upstream[A], in Inputs[S, P, A], out Outputs[A], tokens, channels int, cfg mhc.Config) error {
	s, err := sizesOf(tokens, channels, cfg)
	if err != nil {
		return err
	}
	if err := check(append(inputs(in, s),
		required("Mix", out.Mix, s.mix), required("R", out.R, s.tokens),
		optional("upstream Pre", up.Pre, s.vector), optional("upstream Post", up.Post, s.vector), optional("upstream Res", up.Res, s.res),
		optional("gradient X", grad.X, s.x), optional("gradient Phi", grad.Phi, s.phi),
		optional("gradient B", grad.B, s.m), optional("gradient Alpha", grad.Alpha, 3))); err != nil {
		return err
	}
	if up.Pre == nil && up.Post == nil && up.Res == nil {
		clear(grad.X)
		clear(grad.Phi)
		clear(grad.B)
		clear(grad.Alpha)
		return nil
	}
	buffer := scratch.Borrow[A](&dmixes, s.mix)
	defer scratch.GiveBack(&dmixes, buffer)
	dmix := *buffer
	chunk, width := projection(cfg).Chunk(), s.m+3
	sums := scratch.Borrow[float64](&pieces, max(1, (tokens+chunk-1)/chunk)*width)
	defer scratch.GiveBack(&pieces, sums)
	total := (*sums)[:width]
	clear(total)
	parallel.Blocks(tokens, chunk, func(c, lo, hi int) {
		b := borrow(&backwards, in.B, in.Alpha, cfg, true)
		defer b.giveBack(&backwards)
		b.backward(dmix, (*sums)[c*width:][:width], up, out.Mix, lo, hi)
	})
	for at := width; at < len(*sums); at += width {
		for i, v := range (*sums)[at:][:width] {
			total[i] += v
		}
	}
	if grad.X != nil || grad.Phi != nil {
		if err := rmsnorm.Backward(grad.X, grad.Phi, in.X, in.Phi, out.Mix, out.R, dmix, s.dims(cfg)); err != nil {
			return err
		}
	}
	if grad.B != nil {
		dtype.Narrow(grad.B, total[:s.m])
	}
	if grad.Alpha != nil {
		dtype.Narrow(grad.Alpha, total[s.m:])
	}
	return nil
}
