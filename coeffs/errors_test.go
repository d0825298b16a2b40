package coeffs_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/coeffs"
)

// call is the arguments of a valid call: 3 tokens of 2 streams of 5 channels.
type call struct {
	*operands[float32, float32, float32]
	tokens, channels int
	cfg              mhc.Config
}

func newCall() *call {
	cfg := mhc.Liger.Config(2)
	return &call{operandsOf[float32, float32, float32](sample(1, 3, 5, cfg)), 3, 5, cfg}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		want              string
		forward, backward bool
		spoil             func(*call)
	}{
		{"mhc: Streams is 0, want 1 or more", true, true, func(c *call) { c.cfg.Streams = 0 }},
		{"coeffs: Streams is 9223372036854775807, want 32768 or fewer", true, true, func(c *call) { c.cfg.Streams = math.MaxInt }},
		{"mhc: RMSEps is NaN, want a finite number of 0 or more", true, true, func(c *call) { c.cfg.RMSEps = math.NaN() }},
		{"mhc: Sinkhorn: sinkhorn: Iterations is -1, want 1 or more", true, true, func(c *call) { c.cfg.Sinkhorn.Iterations = -1 }},
		{"coeffs: tokens is -1, want 0 or more", true, true, func(c *call) { c.tokens = -1 }},
		{"coeffs: channels is 0, want 1 or more", true, true, func(c *call) { c.channels = 0 }},
		{"coeffs: X has 30 numbers, want 9223372036854775807", true, true, func(c *call) { c.tokens = math.MaxInt }},
		{"coeffs: X has 29 numbers, want 30", true, true, func(c *call) { c.in.X = c.in.X[1:] }},
		{"coeffs: Phi has 81 numbers, want 80", true, true, func(c *call) { c.in.Phi = append(c.in.Phi, 1) }},
		{"coeffs: B has 0 numbers, want 8", true, true, func(c *call) { c.in.B = nil }},
		{"coeffs: Alpha has 1 numbers, want 3", true, true, func(c *call) { c.in.Alpha = c.in.Alpha[:1] }},
		{"coeffs: Mix has 0 numbers, want 24", true, true, func(c *call) { c.out.Mix = nil }},
		{"coeffs: R has 2 numbers, want 3", true, true, func(c *call) { c.out.R = c.out.R[:2] }},
		{"coeffs: Pre has 5 numbers, want 6", true, false, func(c *call) { c.out.Pre = c.out.Pre[1:] }},
		{"coeffs: Post has 0 numbers, want 6", true, false, func(c *call) { c.out.Post = c.out.Post[:0] }},
		{"coeffs: Res has 6 numbers, want 12", true, false, func(c *call) { c.out.Res = c.out.Res[:6] }},
		{"coeffs: upstream Pre has 7 numbers, want 6", false, true, func(c *call) { c.up.Pre = append(c.up.Pre, 1) }},
		{"coeffs: upstream Post has 1 numbers, want 6", false, true, func(c *call) { c.up.Post = c.up.Post[:1] }},
		{"coeffs: upstream Res has 0 numbers, want 12", false, true, func(c *call) { c.up.Res = []float32{} }},
		{"coeffs: gradient X has 1 numbers, want 30", false, true, func(c *call) { c.grad.X = c.grad.X[:1] }},
		{"coeffs: gradient Phi has 0 numbers, want 80", false, true, func(c *call) { c.grad.Phi = c.grad.Phi[:0] }},
		{"coeffs: gradient B has 9 numbers, want 8", false, true, func(c *call) { c.grad.B = append(c.grad.B, 0) }},
		{"coeffs: gradient Alpha has 2 numbers, want 3", false, true, func(c *call) { c.grad.Alpha = c.grad.Alpha[:2] }},
	} {
		call := newCall()
		c.spoil(call)
		if c.forward {
			assert.EqualError(t, coeffs.Forward(call.out, call.in, call.tokens, call.channels, call.cfg), c.want)
		}
		if c.backward {
			assert.EqualError(t, coeffs.Backward(call.grad, call.up, call.in, call.out, call.tokens, call.channels, call.cfg), c.want)
		}
		for _, a := range [][]float32{
			call.out.Pre, call.out.Post, call.out.Res, call.out.Mix, call.out.R, call.grad.X, call.grad.Phi, call.grad.B, call.grad.Alpha,
		} {
			for _, v := range a {
				assert.Zero(t, v, "nothing is written: %s", c.want)
			}
		}
	}
}

// Types that do not go together are refused by the matmul's own checks.
func TestMixedTypes(t *testing.T) {
	p := sample(1, 3, 5, mhc.Liger.Config(2))
	o := operandsOf[float32, float32, float64](p)
	assert.Error(t, coeffs.Forward(o.out, o.in, 3, 5, p.cfg))
	assert.Error(t, coeffs.Backward(o.grad, o.up, o.in, o.out, 3, 5, p.cfg))
	assert.Equal(t, make([]float64, 3), o.grad.Alpha, "nothing is written")
}

// FuzzCoeffs tries any sizes and settings: an error or numbers, never a panic.
func FuzzCoeffs(f *testing.F) {
	f.Add(3, 4, 8, 96, 6, 20, 1e-6, 0, 0, 0, uint8(0))
	f.Add(17, 1, 3, 51, 0, 1, 0.0, 1, 1, 1, uint8(0b1010101))
	f.Add(-1, math.MaxInt, 0, 0, 0, -5, math.NaN(), 9, 9, 9, uint8(255))
	f.Fuzz(func(t *testing.T, tokens, streams, channels, x, phi, iterations int, eps float64, start, end, layout int, absent uint8) {
		if iterations > 64 && iterations < 1<<17 {
			t.Skip("too long for one try")
		}
		cfg := mhc.Liger.Config(streams)
		cfg.RMSEps, cfg.PreEps, cfg.Phi = eps, eps, mhc.PhiLayout(layout)
		cfg.Sinkhorn.Iterations, cfg.Sinkhorn.Eps = iterations, eps
		if start > 0 {
			cfg.Sinkhorn.Start++
		}
		if end > 0 {
			cfg.Sinkhorn.End++
		}
		// Lengths that fit where that is small, and those given where it is not.
		k, m := streams*channels, streams*(streams+2)
		fits := tokens >= 0 && tokens < 64 && streams > 0 && streams < 7 && channels > 0 && channels < 9
		size := func(want, otherwise int) []float32 {
			absent = absent>>1 | absent<<7
			if fits && absent&1 == 0 {
				return make([]float32, want)
			}
			if otherwise < 0 || otherwise > 4096 {
				return nil
			}
			return make([]float32, otherwise)
		}
		in := coeffs.Inputs[float32, float32, float32]{X: size(tokens*k, x), Phi: size(k*m, phi), B: size(m, x), Alpha: make([]float32, 3)}
		for i := range in.X {
			in.X[i] = float32(i%13 - 6)
		}
		for i := range in.Phi {
			in.Phi[i] = float32(i%7 - 3)
		}
		out := coeffs.Outputs[float32]{
			Pre: size(tokens*streams, 0), Post: size(tokens*streams, phi), Res: size(tokens*streams*streams, 0), Mix: size(tokens*m, phi), R: size(tokens, x),
		}
		if err := coeffs.Forward(out, in, tokens, channels, cfg); err == nil {
			require.True(t, fits || tokens == 0 || len(in.X) == tokens*k)
		}
		up := coeffs.Upstream[float32]{Pre: out.Pre, Post: out.Post, Res: out.Res}
		grad := coeffs.Gradients[float32, float32, float32]{X: size(tokens*k, 0), Phi: size(k*m, 0), B: size(m, 1), Alpha: make([]float32, 3)}
		_ = coeffs.Backward(grad, up, in, out, tokens, channels, cfg)
	})
}
