package sinkhorn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/tier/tiertest"
	"github.com/mhc-go/mhc/sinkhorn"
)

// conventions are the published ones and the two mixtures of them, T = 20.
var conventions = []sinkhorn.Config{
	{Start: sinkhorn.RowSoftmax, End: sinkhorn.Columns, Iterations: 20, Eps: 1e-6},
	{Start: sinkhorn.Exp, End: sinkhorn.Rows, Iterations: 20},
	{Start: sinkhorn.RowSoftmax, End: sinkhorn.Rows, Iterations: 20},
	{Start: sinkhorn.Exp, End: sinkhorn.Columns, Iterations: 20, Eps: 1e-6},
}

func name(n int, cfg sinkhorn.Config) string {
	return fmt.Sprintf("n=%d,%v-%v,T=%d,eps=%g", n, cfg.Start, cfg.End, cfg.Iterations, cfg.Eps)
}

func normal[T dtype.Float](rng *rand.Rand, count int, scale float64) []T {
	a := make([]T, count)
	for i := range a {
		a[i] = T(scale * rng.NormFloat64())
	}
	return a
}

func widened[T dtype.Float](a []T) []float64 {
	w := make([]float64, len(a))
	dtype.Widen(w, a)
	return w
}

// relative is the norm of got - want over that of want. Below 1e-30, a norm is
// near the end of float32 and says nothing.
func relative[T dtype.Float](got []T, want []float64) float64 {
	var diff, norm float64
	for i, w := range want {
		diff = math.Hypot(diff, float64(got[i])-w)
		norm = math.Hypot(norm, w)
	}
	return diff / max(norm, 1e-30)
}

// tester is a test of package testing or of package rapid.
type tester interface {
	require.TestingT
	Helper()
}

func requireSameBits[T dtype.Float](t tester, want, got []T) {
	t.Helper()
	require.Equal(t, len(want), len(got))
	for i := range want {
		if math.Float64bits(float64(want[i])) != math.Float64bits(float64(got[i])) {
			require.FailNow(t, "not the same bits", "number %d: %v and %v", i, want[i], got[i])
		}
	}
}

// run is the forward and the backward, with the inputs verified.
func run[T dtype.Float](t tester, logits, dout []T, n int, cfg sinkhorn.Config) (out, grad []T) {
	t.Helper()
	a, d := append([]T(nil), logits...), append([]T(nil), dout...)
	out, grad = make([]T, len(a)), make([]T, len(a))
	require.NoError(t, sinkhorn.Forward(out, a, n, cfg))
	require.NoError(t, sinkhorn.Backward(grad, a, d, n, cfg))
	requireSameBits(t, logits, a)
	requireSameBits(t, dout, d)
	return out, grad
}

// example is a matrix with the reference's results.
type example[T dtype.Float] struct {
	n                int
	cfg              sinkhorn.Config
	logits, dout     []T
	wantOut, wantGra []float64
}

func newExample[T dtype.Float](logits []T, n int, cfg sinkhorn.Config) example[T] {
	e := example[T]{n: n, cfg: cfg, logits: logits, dout: normal[T](rand.New(rand.NewPCG(2, uint64(n))), n*n, 1)}
	e.wantOut, e.wantGra = reference(widened(e.logits), widened(e.dout), n, cfg)
	return e
}

func (e example[T]) require(t *testing.T, bound, gradBound float64) {
	t.Helper()
	out, grad := run(t, e.logits, e.dout, e.n, e.cfg)
	require.LessOrEqual(t, relative(out, e.wantOut), bound, "%s: projection of %v", name(e.n, e.cfg), e.logits)
	require.LessOrEqual(t, relative(grad, e.wantGra), gradBound, "%s: gradient of %v", name(e.n, e.cfg), e.logits)
}

func requireAll[T dtype.Float](t *testing.T, examples []example[T], bound, gradBound float64) {
	t.Helper()
	for _, e := range examples {
		e.require(t, bound, gradBound)
	}
}

func TestReference(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var single []example[float32]
	var double []example[float64]
	for _, cfg := range conventions {
		for _, cfg.Iterations = range []int{1, 2, 20} {
			for _, n := range []int{1, 2, 3, 4, 5, 8, 16} {
				if n*cfg.Iterations > 8*20 {
					continue // the reference is slow
				}
				single = append(single, newExample(normal[float32](rng, n*n, 1), n, cfg))
				double = append(double, newExample(normal[float64](rng, n*n, 1), n, cfg))
			}
		}
		cfg.Iterations = 1
		single = append(single, newExample(normal[float32](rng, 33*33, 1), 33, cfg), newExample(normal[float32](rng, 64*64, 1), 64, cfg))
	}
	tiertest.Each(t, func(t *testing.T) {
		requireAll(t, single, 1e-6, 2e-6)
		requireAll(t, double, 1e-14, 1e-13)
	})
}

// Where an entry rules its row, its gradient is what is left of large numbers;
// where no cycle of entries is of one size, the logits' own rounding, at a scale
// s of s units of 2^-24, is what comes out.
func TestLargeLogits(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	var single []example[float32]
	var double []example[float64]
	for _, cfg := range conventions {
		for _, scale := range []float64{5, 10, 20, 40, 100, 1e4} {
			for range 3 {
				single = append(single, newExample(normal[float32](rng, 16, scale), 4, cfg))
				double = append(double, newExample(normal[float64](rng, 16, scale), 4, cfg))
			}
		}
	}
	tiertest.Each(t, func(t *testing.T) {
		requireAll(t, single, 1e-6, 1e-5)
		requireAll(t, double, 1e-12, 1e-6)
	})
}

// With n-1 rows that all but share one column, each iteration enlarges the other
// entries by (n-1)^2: what would have been lost at the start decides the end.
func TestUnderflowThatGrows(t *testing.T) {
	const n = 8
	for _, gap := range []float64{30, 45, 47, 90, 110, 150, 450, 480, 800} {
		logits := make([]float64, n*n)
		for i := range n {
			for j := range n {
				logits[i*n+j] = 0.1 * float64((3*i+5*j)%7)
				if (i < n-1) != (j == 0) {
					logits[i*n+j] -= gap
				}
			}
		}
		single := make([]float32, n*n)
		dtype.Narrow(single, logits)
		cfg := sinkhorn.Config{Start: sinkhorn.Exp, End: sinkhorn.Rows, Iterations: 20}
		if gap > 40 {
			cfg.Iterations = 25 // 10^42
		}
		s, d := newExample(single, n, cfg), newExample(logits, n, cfg)
		tiertest.Each(t, func(t *testing.T) {
			s.require(t, 2e-6, 2e-6)
			d.require(t, 1e-12, 1e-12)
		})
	}
}

func TestEps(t *testing.T) {
	for _, eps := range []float64{1e-300, 1e-12, 1e-8, 1e-3, 0.5, 1, 1.001, 10, 1e10, 1e300} {
		for _, cfg := range conventions {
			cfg.Eps = eps
			for _, scale := range []float64{1, 20} {
				rng := rand.New(rand.NewPCG(4, uint64(scale)))
				s, d := newExample(normal[float32](rng, 9, scale), 3, cfg), newExample(normal[float64](rng, 9, scale), 3, cfg)
				tiertest.Each(t, func(t *testing.T) {
					s.require(t, 1e-6, 1e-5)
					d.require(t, 1e-12, 1e-12)
				})
			}
		}
	}
}

// mixtures are matrices of the numbers v, every entry with every other.
func mixtures[T dtype.Float](rng *rand.Rand, n int, v ...T) []T {
	a := make([]T, 40*n*n)
	for i := range a {
		a[i] = v[rng.IntN(len(v))]
	}
	return a
}

func TestFinite(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(5, 1))
		for _, cfg := range conventions {
			for _, cfg.Iterations = range []int{1, 20} {
				for _, n := range []int{1, 2, 4, 5} {
					requireFinite[float32](t, mixtures[float32](rng, n, 1e4, -1e4, 0, 50), n, cfg)
					requireFinite[float32](t, mixtures[float32](rng, n, 3e38, -3e38, 0, 1), n, cfg)
					requireFinite[float64](t, mixtures(rng, n, 1e4, -1e4, 0, 50), n, cfg)
					requireFinite[float64](t, mixtures(rng, n, 1.7e308, -1.7e308, 0, 1), n, cfg)
				}
			}
		}
	})
}

func requireFinite[T dtype.Float](t *testing.T, logits []T, n int, cfg sinkhorn.Config) {
	t.Helper()
	dout := make([]T, len(logits))
	for i := range dout {
		dout[i] = T(i%5 - 2)
	}
	out, grad := run(t, logits, dout, n, cfg)
	for i, v := range out {
		require.True(t, v >= 0 && v <= 1.0001, "%s: projection %v at %d of %v", name(n, cfg), v, i%(n*n), logits[i/(n*n)*(n*n):][:n*n])
		require.False(t, math.IsNaN(float64(grad[i])) || math.IsInf(float64(grad[i]), 0), "%s: gradient %v at %d", name(n, cfg), grad[i], i)
	}
}

func TestNaN(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) { testNaN[float32](t); testNaN[float64](t) })
}

func testNaN[T dtype.Float](t *testing.T) {
	const tokens = 21
	for _, cfg := range conventions {
		for _, cfg.Iterations = range []int{1, 20} {
			for _, n := range []int{1, 2, 4, 5} {
				rng, nn := rand.New(rand.NewPCG(6, 1)), n*n
				logits, dout := normal[T](rng, tokens*nn, 1), normal[T](rng, tokens*nn, 1)
				cleanOut, cleanGrad := run(t, logits, dout, n, cfg)
				for k := range nn {
					spoiled := append([]T(nil), logits...)
					for _, token := range []int{2, 17} {
						spoiled[token*nn+k] = T(math.NaN())
					}
					out, grad := run(t, spoiled, dout, n, cfg)
					for token := range tokens {
						at := token * nn
						if token != 2 && token != 17 {
							requireSameBits(t, cleanOut[at:at+nn], out[at:at+nn])
							requireSameBits(t, cleanGrad[at:at+nn], grad[at:at+nn])
							continue
						}
						for i := at; i < at+nn; i++ {
							require.True(t, out[i] != out[i] && grad[i] != grad[i], "%s: %v, gradient %v", name(n, cfg), out[i], grad[i])
						}
					}
				}
			}
		}
	}
}

func TestInfinity(t *testing.T) {
	inf := math.Inf(1)
	const far = -2e4 // as good as -Inf, and within the reference's reach
	nan := func(a []float64) bool { return math.IsNaN(a[0]) && math.IsNaN(a[len(a)-1]) }
	tiertest.Each(t, func(t *testing.T) {
		for _, cfg := range conventions {
			for _, mask := range [][]int{{1}, {0, 4}, {2, 3}, {5, 7}} {
				logits := []float64{0.3, -0.2, 1, 0.7, 0.1, -1, 0.2, 0.9, -0.4}
				masked := append([]float64(nil), logits...)
				for _, k := range mask {
					logits[k], masked[k] = far, -inf
				}
				dout := normal[float64](rand.New(rand.NewPCG(7, 1)), 9, 1)
				out, grad := run(t, masked, dout, 3, cfg)
				wantOut, wantGrad := reference(logits, dout, 3, cfg)
				assert.LessOrEqual(t, relative(out, wantOut), 1e-12, "%s without %v", name(3, cfg), mask)
				assert.LessOrEqual(t, relative(grad, wantGrad), 1e-12, "%s without %v", name(3, cfg), mask)
				if cfg.Eps == 0 {
					for _, k := range mask {
						assert.Equal(t, []float64{0, 0}, []float64{out[k], grad[k]})
					}
				}
			}
			for _, c := range []struct {
				logits []float64
				nan    bool
			}{
				{[]float64{inf, 0, 0, 0}, true},
				{[]float64{-inf, -inf, 0, 0}, cfg.Start == sinkhorn.RowSoftmax || cfg.Eps == 0},
				{[]float64{-inf, 0, -inf, 0}, cfg.Start == sinkhorn.Exp || cfg.Eps == 0},
			} {
				out, grad := run(t, c.logits, []float64{1, 2, 3, 5}, 2, cfg)
				assert.Equal(t, [2]bool{c.nan, c.nan}, [2]bool{nan(out), nan(grad)}, "%s of %v: %v, %v", name(2, cfg), c.logits, out, grad)
			}
		}
	})
}

// Central differences of the loss sum(out * dout) along every logit.
func TestCentralDifferences(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 1))
	for _, cfg := range conventions {
		for _, cfg.Eps = range []float64{cfg.Eps, 0.01} {
			for _, cfg.Iterations = range []int{1, 3, 20} {
				for _, n := range []int{2, 3, 4, 5} {
					logits, dout := normal[float64](rng, n*n, 1), normal[float64](rng, n*n, 1)
					_, grad := run(t, logits, dout, n, cfg)
					loss := func(k int, step float64) (sum float64) {
						a := append([]float64(nil), logits...)
						a[k] += step
						require.NoError(t, sinkhorn.Forward(a, a, n, cfg))
						for i, v := range a {
							sum += v * dout[i]
						}
						return sum
					}
					const h = 1e-5
					for k := range logits {
						require.InDelta(t, (loss(k, h)-loss(k, -h))/(2*h), grad[k], 1e-9, "%s, logit %d", name(n, cfg), k)
					}
				}
			}
		}
	}
}

// What comes back from the sums on the way through a thousand steps is still what
// was there.
func TestManyIterations(t *testing.T) {
	for _, cfg := range conventions {
		cfg.Iterations = 500
		rng := rand.New(rand.NewPCG(10, 1))
		s, d := newExample(normal[float32](rng, 9, 3), 3, cfg), newExample(normal[float64](rng, 9, 3), 3, cfg)
		tiertest.Each(t, func(t *testing.T) {
			s.require(t, 1e-6, 2e-6)
			d.require(t, 1e-13, 1e-13)
		})
	}
}
