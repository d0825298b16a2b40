package coeffs_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/coeffs"
	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/scratch/scratchtest"
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

// tester is a test of package testing or of package rapid.
type tester interface {
	require.TestingT
	Helper()
}

func (o *operands[S, P, A]) run(t tester, p *problem) {
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
func requireReference[S, P dtype.Storage, A dtype.Float](t *testing.T, p *problem, forward, backward bounds) {
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

// mixed are settings that no preset has together.
func mixed(n int) []mhc.Config {
	a, b := mhc.Liger.Config(n), mhc.Paper.Config(n)
	a.PreEps, a.PostMult, a.Phi = 0.25, -1.5, mhc.PhiMK
	a.Sinkhorn = sinkhorn.Config{Start: sinkhorn.Exp, End: sinkhorn.Columns, Iterations: 3, Eps: 1e-6}
	b.RMSEps, b.PreEps, b.PostMult = 0.1, 1e-3, 0.5
	b.Sinkhorn = sinkhorn.Config{Start: sinkhorn.RowSoftmax, End: sinkhorn.Rows, Iterations: 1, Eps: 1e-2}
	return []mhc.Config{a, b}
}

// settings are the presets and two mixtures.
func settings(n int) (all []mhc.Config) {
	for _, preset := range mhc.Presets {
		all = append(all, preset.Config(n))
	}
	return append(all, mixed(n)...)
}

func TestReference(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) {
		for _, n := range []int{1, 2, 3, 4, 5, 8, 16} {
			for i, cfg := range settings(n) {
				t.Run(fmt.Sprintf("n=%d,setting=%d", n, i), func(t *testing.T) {
					requireReference[float64, float64, float64](t, sample(1, 21, 5, cfg), double, double)
					requireReference[float32, float32, float32](t, sample(2, 21, 5, cfg), single, single)
				})
			}
		}
	})
}

// More tokens than one piece of work, and not a multiple of a block.
func TestManyTokens(t *testing.T) {
	for _, cfg := range settings(4) {
		requireReference[float64, float64, float64](t, sample(3, 1003, 3, cfg), double, double)
		requireReference[float32, float32, float32](t, sample(4, 1003, 3, cfg), single, single)
	}
}

// The gradients of 16-bit tensors are rounded once: half a unit in the last place.
func TestStorage(t *testing.T) {
	bf, half := bounds{gradients: 1.0 / 256}, bounds{gradients: 1.0 / 2048}
	tiertest.Each(t, func(t *testing.T) {
		for _, cfg := range settings(4) {
			requireReference[dtype.BFloat16, dtype.BFloat16, float32](t, sample(3, 21, 33, cfg), single, bf)
			requireReference[dtype.BFloat16, float32, float32](t, sample(4, 21, 33, cfg), single, bf)
			requireReference[dtype.Float16, dtype.Float16, float32](t, sample(5, 21, 33, cfg), single, half)
			requireReference[dtype.Float16, float32, float32](t, sample(6, 21, 33, cfg), single, half)
		}
	})
}

// Every subset of used outputs, with the rest neither computed nor missed.
func TestSubsets(t *testing.T) {
	for _, cfg := range settings(3) {
		for used := 1; used < 8; used++ {
			p := sample(7, 21, 4, cfg)
			all := operandsOf[float64, float64, float64](p)
			all.run(t, p)
			if used&1 == 0 {
				p.upPre = nil
			}
			if used&2 == 0 {
				p.upPost = nil
			}
			if used&4 == 0 {
				p.upRes = nil
			}
			requireReference[float64, float64, float64](t, p, double, double)

			o := operandsOf[float64, float64, float64](p)
			whole := o.out
			for i, out := range []*[]float64{&o.out.Pre, &o.out.Post, &o.out.Res} {
				if used>>i&1 == 0 {
					*out = nil
				}
			}
			o.run(t, p)
			for i, out := range [][]float64{whole.Pre, whole.Post, whole.Res} {
				want := [][]float64{all.out.Pre, all.out.Post, all.out.Res}[i]
				if used>>i&1 == 0 {
					want = make([]float64, len(want))
				}
				require.Equal(t, want, out)
			}
			require.Equal(t, all.out.Mix, o.out.Mix)
			require.Equal(t, all.out.R, o.out.R)
		}
	}
}

func TestSubsetsOfGradients(t *testing.T) {
	p := sample(8, 21, 4, mhc.Liger.Config(4))
	all := operandsOf[float32, float32, float32](p)
	all.run(t, p)
	for wanted := range 16 {
		o := operandsOf[float32, float32, float32](p)
		want := all.grad
		for i, g := range []*[]float32{&o.grad.X, &o.grad.Phi, &o.grad.B, &o.grad.Alpha} {
			if wanted>>i&1 == 0 {
				*g = nil
				*[]*[]float32{&want.X, &want.Phi, &want.B, &want.Alpha}[i] = nil
			}
		}
		o.run(t, p)
		require.Equal(t, want, o.grad)
	}
}

// Without an upstream gradient every gradient is zero, whatever the inputs are.
func TestNoUpstream(t *testing.T) {
	p := sample(9, 21, 4, mhc.DeepSeekV4.Config(4))
	p.x[3], p.alpha[1], p.b[2] = math.NaN(), math.Inf(1), math.NaN()
	p.upPre, p.upPost, p.upRes = nil, nil, nil
	o := operandsOf[dtype.BFloat16, float32, float32](p)
	for i := range o.grad.X {
		o.grad.X[i] = 77
	}
	for _, g := range [][]float32{o.grad.Phi, o.grad.B, o.grad.Alpha} {
		for i := range g {
			g[i] = 77
		}
	}
	o.run(t, p)
	require.Equal(t, make([]dtype.BFloat16, len(o.grad.X)), o.grad.X)
	for _, g := range [][]float32{o.grad.Phi, o.grad.B, o.grad.Alpha} {
		require.Equal(t, make([]float32, len(g)), g)
	}
}

func TestNoTokens(t *testing.T) {
	for _, cfg := range settings(4) {
		p := sample(10, 0, 4, cfg)
		p.upPre = []float64{}
		o := operandsOf[float32, float32, float32](p)
		for _, g := range [][]float32{o.grad.Phi, o.grad.B, o.grad.Alpha} {
			for i := range g {
				g[i] = 77
			}
		}
		o.run(t, p)
		for _, g := range [][]float32{o.grad.Phi, o.grad.B, o.grad.Alpha} {
			require.Equal(t, make([]float32, len(g)), g)
		}
	}
}

func TestInputsUnchanged(t *testing.T) {
	p := sample(11, 21, 4, mhc.Paper.Config(4))
	o, twin := operandsOf[float32, float32, float32](p), operandsOf[float32, float32, float32](p)
	o.run(t, p)
	require.Equal(t, twin.in, o.in)
	require.Equal(t, twin.up, o.up)
	mix, r := append([]float32(nil), o.out.Mix...), append([]float32(nil), o.out.R...)
	require.NoError(t, coeffs.Backward(o.grad, o.up, o.in, o.out, p.tokens, p.channels, p.cfg))
	require.Equal(t, mix, o.out.Mix)
	require.Equal(t, r, o.out.R)
}

// The projection is that of package sinkhorn, bit by bit.
func TestResIsSinkhorn(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) {
		for _, n := range []int{1, 2, 3, 4, 5, 8} {
			for _, cfg := range settings(n) {
				p := sample(12, 37, 4, cfg)
				p.alpha = []float64{1, 1, 1}
				for j := range p.b {
					p.b[j] = 0
				}
				o := operandsOf[float32, float32, float32](p)
				o.run(t, p)
				var logits []float32
				for token := range p.tokens {
					logits = append(logits, o.out.Mix[token*cfg.Width()+2*n:(token+1)*cfg.Width()]...)
				}
				require.NoError(t, sinkhorn.Forward(logits, logits, n, cfg.Sinkhorn))
				require.Equal(t, logits, o.out.Res)
			}
		}
	})
}

// Logits of +-1e4, by the bias and by alpha, and tokens of zeros.
func TestExtremes(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) { testExtremes[float32](t); testExtremes[float64](t) })
}

func testExtremes[A dtype.Float](t *testing.T) {
	for _, cfg := range settings(4) {
		for _, spoil := range []func(*problem){
			func(p *problem) {
				for j := range p.b {
					p.b[j] = []float64{1e4, -1e4, 0, 20}[j*j%7%4]
				}
			},
			func(p *problem) { p.alpha = []float64{1e4, -1e4, 1e4} },
			func(p *problem) { clear(p.x) },
		} {
			p := sample(13, 37, 4, cfg)
			spoil(p)
			o := operandsOf[A, A, A](p)
			o.run(t, p)
			for _, a := range [][]A{o.out.Pre, o.out.Post, o.out.Res, o.grad.X, o.grad.Phi, o.grad.B, o.grad.Alpha} {
				for _, v := range a {
					require.True(t, v-v == 0, "%v is finite", v)
				}
			}
		}
	}
}

// A sigmoid of 12 is 1 less 6e-6: its slope must not be what is left of 1 - s.
func TestSlopeOfSaturatedSigmoid(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) {
		p := sample(14, 21, 4, mhc.Liger.Config(4))
		p.upRes = nil
		for j := range 8 {
			p.b[j] = 12
		}
		requireReference[float32, float32, float32](t, p, single, single)
	})
}

func TestNaN(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) {
		for _, cfg := range settings(4) {
			p := sample(15, 37, 4, cfg)
			clean := operandsOf[float32, float32, float32](p)
			clean.run(t, p)
			const spoiled, k = 18, 16
			p.x[spoiled*k+5] = math.NaN()
			o := operandsOf[float32, float32, float32](p)
			o.run(t, p)
			for _, c := range []struct{ got, want []float32 }{
				{o.out.Pre, clean.out.Pre}, {o.out.Post, clean.out.Post}, {o.out.Res, clean.out.Res}, {o.grad.X, clean.grad.X},
			} {
				size := len(c.got) / p.tokens
				for i, v := range c.got {
					if i/size == spoiled {
						require.True(t, v != v, "%v of the spoiled token", v)
					} else {
						require.Equal(t, c.want[i], v)
					}
				}
			}
			for _, g := range [][]float32{o.grad.Phi, o.grad.B, o.grad.Alpha} {
				require.True(t, g[0] != g[0])
			}
		}
	})
}

func TestSameBitsWhateverGOMAXPROCS(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	tiertest.Each(t, func(t *testing.T) {
		for _, cfg := range settings(4) {
			p := sample(16, 1500, 4, cfg)
			runtime.GOMAXPROCS(1)
			want := operandsOf[float32, float32, float32](p)
			want.run(t, p)
			for _, procs := range []int{2, 7} {
				runtime.GOMAXPROCS(procs)
				o := operandsOf[float32, float32, float32](p)
				o.run(t, p)
				require.Equal(t, want, o)
			}
		}
	})
}

// A token's coefficients and gradient have the same bits alone as among others.
func TestSameBitsWhateverThePlace(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) {
		for _, n := range []int{1, 3, 4} {
			for _, cfg := range settings(n) {
				p := sample(17, 50, 5, cfg)
				all := operandsOf[float32, float32, float32](p)
				all.run(t, p)
				for _, first := range []int{1, 16, 33, 49} {
					part := *p
					part.tokens = p.tokens - first
					part.x = p.x[first*n*5:]
					part.upPre, part.upPost, part.upRes = p.upPre[first*n:], p.upPost[first*n:], p.upRes[first*n*n:]
					o := operandsOf[float32, float32, float32](&part)
					o.run(t, &part)
					require.Equal(t, all.out.Pre[first*n:], o.out.Pre)
					require.Equal(t, all.out.Post[first*n:], o.out.Post)
					require.Equal(t, all.out.Res[first*n*n:], o.out.Res)
					require.Equal(t, all.grad.X[first*n*5:], o.grad.X)
				}
			}
		}
	})
}

func TestSteadyState(t *testing.T) {
	p := sample(17, 1000, 16, mhc.Liger.Config(4))
	o := operandsOf[float32, float32, float32](p)
	o.run(t, p)
	scratchtest.RequireSteady(t, func() { require.NoError(t, coeffs.Forward(o.out, o.in, p.tokens, p.channels, p.cfg)) })
	scratchtest.RequireSteady(t, func() {
		require.NoError(t, coeffs.Backward(o.grad, o.up, o.in, o.out, p.tokens, p.channels, p.cfg))
	})
}
