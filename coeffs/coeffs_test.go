package coeffs_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/coeffs"
	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/tier/tiertest"
	"github.com/mhc-go/mhc/sinkhorn"
)

// bounds are the largest errors allowed, as norm of the difference over norm.
type bounds struct{ coefficients, gradients float64 }

var (
	double = bounds{1e-12, 1e-12}
	single = bounds{2e-6, 1e-5}
)

// sample is random operands whose logits are of order 1.
func sample(seed uint64, tokens, channels int, cfg mhc.Config) *problem {
	rng := rand.New(rand.NewPCG(seed, 0))
	normal := func(count int, scale float64) []float64 {
		a := make([]float64, count)
		for i := range a {
			a[i] = scale * rng.NormFloat64()
		}
		return a
	}
	n, m, k := cfg.Streams, cfg.Width(), cfg.Streams*channels
	return &problem{
		tokens: tokens, channels: channels, cfg: cfg,
		x: normal(tokens*k, 1), phi: normal(k*m, 1/math.Sqrt(float64(k))), b: normal(m, 0.5), alpha: []float64{0.9, 1.1, 0.7},
		upPre: normal(tokens*n, 1), upPost: normal(tokens*n, 1), upRes: normal(tokens*n*n, 1),
	}
}

// operands are a problem in the types of a call.
type operands[S, P dtype.Storage, A dtype.Float] struct {
	in   coeffs.Inputs[S, P, A]
	out  coeffs.Outputs[A]
	up   coeffs.Upstream[A]
	grad coeffs.Gradients[S, P, A]
}

func narrowed[S dtype.Storage](a []float64) []S {
	if a == nil {
		return nil
	}
	s := make([]S, len(a))
	dtype.Narrow(s, a)
	return s
}

func widened[S dtype.Storage](a []S) []float64 {
	w := make([]float64, len(a))
	dtype.Widen(w, a)
	return w
}

// transpose is the matrix a of rows rows the other way round.
func transpose[E any](a []E, rows int) []E {
	cols := len(a) / rows
	t := make([]E, len(a))
	for i, v := range a {
		t[i%cols*rows+i/cols] = v
	}
	return t
}

// operandsOf rounds p to the types of a call, in p as well, and makes room for
// the results.
func operandsOf[S, P dtype.Storage, A dtype.Float](p *problem) *operands[S, P, A] {
	n, m := p.cfg.Streams, p.cfg.Width()
	o := &operands[S, P, A]{
		in:  coeffs.Inputs[S, P, A]{X: narrowed[S](p.x), Phi: narrowed[P](p.phi), B: narrowed[A](p.b), Alpha: narrowed[A](p.alpha)},
		up:  coeffs.Upstream[A]{Pre: narrowed[A](p.upPre), Post: narrowed[A](p.upPost), Res: narrowed[A](p.upRes)},
		out: coeffs.Outputs[A]{Pre: make([]A, p.tokens*n), Post: make([]A, p.tokens*n), Res: make([]A, p.tokens*n*n), Mix: make([]A, p.tokens*m), R: make([]A, p.tokens)},
		grad: coeffs.Gradients[S, P, A]{
			X: make([]S, len(p.x)), Phi: make([]P, len(p.phi)), B: make([]A, m), Alpha: make([]A, 3),
		},
	}
	p.x, p.phi, p.b, p.alpha = widened(o.in.X), widened(o.in.Phi), widened(o.in.B), widened(o.in.Alpha)
	for _, up := range []*[]float64{&p.upPre, &p.upPost, &p.upRes} {
		if *up != nil {
			*up = widened(narrowed[A](*up))
		}
	}
	if p.cfg.Phi == mhc.PhiMK {
		o.in.Phi = transpose(o.in.Phi, n*p.channels)
	}
	return o
}

func (o *operands[S, P, A]) run(t testing.TB, p *problem) {
	t.Helper()
	require.NoError(t, coeffs.Forward(o.out, o.in, p.tokens, p.channels, p.cfg))
	require.NoError(t, coeffs.Backward(o.grad, o.up, o.in, o.out, p.tokens, p.channels, p.cfg))
}

// relative is the norm of got - want over that of want.
func relative[S dtype.Storage](got []S, want []float64) float64 {
	var diff, norm float64
	for i, g := range widened(got) {
		d := g - want[i]
		diff += d * d
		norm += want[i] * want[i]
	}
	if norm == 0 {
		return math.Sqrt(diff)
	}
	return math.Sqrt(diff / norm)
}

// requireReference computes p in the types of a call and by the definition.
func requireReference[S, P dtype.Storage, A dtype.Float](t testing.TB, p *problem, forward, backward bounds) {
	t.Helper()
	o := operandsOf[S, P, A](p)
	p.solve()
	o.run(t, p)
	dphi := o.grad.Phi
	if p.cfg.Phi == mhc.PhiMK {
		dphi = transpose(dphi, p.cfg.Width())
	}
	for _, c := range []struct {
		name string
		err  float64
		max  float64
	}{
		{"pre", relative(o.out.Pre, p.pre), forward.coefficients},
		{"post", relative(o.out.Post, p.post), forward.coefficients},
		{"res", relative(o.out.Res, p.res), forward.coefficients},
		{"dx", relative(o.grad.X, p.dx), backward.gradients},
		{"dphi", relative(dphi, p.dphi), backward.gradients},
		{"db", relative(o.grad.B, p.db), forward.gradients},
		{"dalpha", relative(o.grad.Alpha, p.dalpha), forward.gradients},
	} {
		require.LessOrEqual(t, c.err, c.max, c.name)
	}
}

var (
	_ = fmt.Sprint
	_ = runtime.GOMAXPROCS
	_ = assert.Equal
	_ = sinkhorn.Exp
)

func TestReference(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) {
		for _, preset := range mhc.Presets {
			for _, n := range []int{1, 2, 3, 4, 5, 8, 16} {
				t.Run(fmt.Sprintf("%v,n=%d", preset, n), func(t *testing.T) {
					cfg := preset.Config(n)
					requireReference[float64, float64, float64](t, sample(1, 21, 5, cfg), double, double)
					requireReference[float32, float32, float32](t, sample(2, 21, 5, cfg), single, single)
				})
			}
		}
	})
}

// The gradients of 16-bit tensors are rounded once: half a unit in the last place.
func TestStorage(t *testing.T) {
	bf, half := bounds{gradients: 1.0 / 256}, bounds{gradients: 1.0 / 2048}
	tiertest.Each(t, func(t *testing.T) {
		for _, preset := range mhc.Presets {
			cfg := preset.Config(4)
			requireReference[dtype.BFloat16, dtype.BFloat16, float32](t, sample(3, 21, 33, cfg), single, bf)
			requireReference[dtype.BFloat16, float32, float32](t, sample(4, 21, 33, cfg), single, bf)
			requireReference[dtype.Float16, dtype.Float16, float32](t, sample(5, 21, 33, cfg), single, half)
			requireReference[dtype.Float16, float32, float32](t, sample(6, 21, 33, cfg), single, half)
		}
	})
}
