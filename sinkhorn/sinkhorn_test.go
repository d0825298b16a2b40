package sinkhorn_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/tier/tiertest"
	"github.com/mhc-go/mhc/sinkhorn"
)

// conventions are the published ones, T and eps apart, and the two mixtures.
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

// relative is the norm of got - want over that of want.
func relative[T dtype.Float](got []T, want []float64) float64 {
	var diff, norm float64
	for i, w := range want {
		d := float64(got[i]) - w
		diff += d * d
		norm += w * w
	}
	if norm == 0 {
		return math.Sqrt(diff)
	}
	return math.Sqrt(diff / norm)
}

// run is the forward and the backward of copies, with the inputs verified.
func run[T dtype.Float](t testing.TB, logits, dout []T, n int, cfg sinkhorn.Config) (out, grad []T) {
	t.Helper()
	a, d := append([]T(nil), logits...), append([]T(nil), dout...)
	out, grad = make([]T, len(a)), make([]T, len(a))
	require.NoError(t, sinkhorn.Forward(out, a, n, cfg))
	require.NoError(t, sinkhorn.Backward(grad, a, d, n, cfg))
	requireSameBits(t, logits, a)
	requireSameBits(t, dout, d)
	return out, grad
}

func requireSameBits[T dtype.Float](t testing.TB, want, got []T) {
	t.Helper()
	require.Equal(t, len(want), len(got))
	for i := range want {
		require.Equal(t, math.Float64bits(float64(want[i])), math.Float64bits(float64(got[i])), "number %d: %v and %v", i, want[i], got[i])
	}
}

// requireReference compares every matrix with the reference.
func requireReference[T dtype.Float](t testing.TB, logits []T, n int, cfg sinkhorn.Config, bound, gradBound float64) {
	t.Helper()
	dout := normal[T](rand.New(rand.NewPCG(2, 3)), len(logits), 1)
	out, grad := run(t, logits, dout, n, cfg)
	for k := 0; k < len(logits); k += n * n {
		wantOut, wantGrad := reference(widened(logits[k:k+n*n]), widened(dout[k:k+n*n]), n, cfg)
		require.LessOrEqual(t, relative(out[k:k+n*n], wantOut), bound, "%s: projection of %v", name(n, cfg), logits[k:k+n*n])
		require.LessOrEqual(t, relative(grad[k:k+n*n], wantGrad), gradBound, "%s: gradient of %v", name(n, cfg), logits[k:k+n*n])
	}
}

func TestReference(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(1, 1))
		for _, n := range []int{1, 2, 3, 4, 5, 8, 16} {
			for _, cfg := range conventions {
				for _, cfg.Iterations = range []int{1, 2, 20} {
					count := 3 * n * n // less than a block
					requireReference(t, normal[float64](rng, count, 1), n, cfg, 1e-13, 1e-12)
					requireReference(t, normal[float32](rng, count, 1), n, cfg, 1e-6, 5e-6)
				}
			}
		}
	})
}

var _ = assert.Equal
var _ = runtime.GOMAXPROCS
