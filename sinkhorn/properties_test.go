package sinkhorn_test

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/scratch/scratchtest"
	"github.com/mhc-go/mhc/internal/tier/tiertest"
	"github.com/mhc-go/mhc/sinkhorn"
)

// drawConfig is any valid setting of T up to 24 iterations.
func drawConfig(t *rapid.T) sinkhorn.Config {
	return sinkhorn.Config{
		Start:      rapid.SampledFrom([]sinkhorn.Start{sinkhorn.RowSoftmax, sinkhorn.Exp}).Draw(t, "start"),
		End:        rapid.SampledFrom([]sinkhorn.Axis{sinkhorn.Columns, sinkhorn.Rows}).Draw(t, "end"),
		Iterations: rapid.IntRange(1, 24).Draw(t, "iterations"),
		Eps:        rapid.SampledFrom([]float64{0, 1e-6, 1e-3}).Draw(t, "eps"),
	}
}

// drawMatrix is numbers of [-1, 1]: each iteration brings them nearer to the fixed
// point by a factor of tanh(1)^2 or more, 20 of them by 2e-5.
func drawMatrix(t *rapid.T, n int, name string) []float64 {
	return rapid.SliceOfN(rapid.Float64Range(-1, 1), n*n, n*n).Draw(t, name)
}

func TestSumsNearOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, cfg := rapid.IntRange(1, 9).Draw(t, "n"), drawConfig(t)
		cfg.Iterations, cfg.Eps = 20, min(cfg.Eps, 1e-6)
		out := drawMatrix(t, n, "logits")
		require.NoError(t, sinkhorn.Forward(out, out, n, cfg))
		for i := range n {
			row, column := 0.0, 0.0
			for j := range n {
				row += out[i*n+j]
				column += out[j*n+i]
			}
			require.InDelta(t, 1, row, 1e-3)
			require.InDelta(t, 1, column, 1e-3)
			if cfg.Eps == 0 { // the last normalisation is exact
				require.InDelta(t, 1, map[sinkhorn.Axis]float64{sinkhorn.Rows: row, sinkhorn.Columns: column}[cfg.End], 1e-14)
			}
		}
	})
}

// Streams have no order: permuting rows and columns of the logits permutes those
// of the projection and of the gradient. (Among equal maxima the shift's gradient,
// which there is with Exp and an eps, chooses by order.)
func TestPermutation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, cfg := rapid.IntRange(1, 7).Draw(t, "n"), drawConfig(t)
		if cfg.Start == sinkhorn.Exp {
			cfg.Eps = 0
		}
		logits, dout := drawMatrix(t, n, "logits"), drawMatrix(t, n, "dout")
		index := make([]int, n)
		for i := range index {
			index[i] = i
		}
		rows, columns := rapid.Permutation(index).Draw(t, "rows"), rapid.Permutation(index).Draw(t, "columns")
		permuted := func(a []float64) []float64 {
			p := make([]float64, n*n)
			for i := range n {
				for j := range n {
					p[i*n+j] = a[rows[i]*n+columns[j]]
				}
			}
			return p
		}
		out, grad := run(t, logits, dout, n, cfg)
		outP, gradP := run(t, permuted(logits), permuted(dout), n, cfg)
		require.InDeltaSlice(t, permuted(out), outP, 1e-12)
		require.InDeltaSlice(t, permuted(grad), gradP, 1e-12)
	})
}

// The reverse of a normalisation is orthogonal to it. What the first one divides
// out of a line, without eps, changes nothing, and nor does what a start
// subtracts from one: the gradients of the line sum to 0.
func TestOrthogonal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, cfg := rapid.IntRange(1, 7).Draw(t, "n"), drawConfig(t)
		_, grad := run(t, drawMatrix(t, n, "logits"), drawMatrix(t, n, "dout"), n, cfg)
		for i := range n {
			row, column := 0.0, 0.0
			for j := range n {
				row += grad[i*n+j]
				column += grad[j*n+i]
			}
			require.InDelta(t, 0, map[sinkhorn.Start]float64{sinkhorn.RowSoftmax: row, sinkhorn.Exp: column}[cfg.Start], 1e-13)
		}
	})
}

// batch is matrices enough for several pieces of work, some of which need float64
// and some the log domain.
func batch[T dtype.Float](tokens, n int) (logits, dout []T) {
	rng := rand.New(rand.NewPCG(9, 1))
	logits, dout = normal[T](rng, tokens*n*n, 1), normal[T](rng, tokens*n*n, 1)
	for k := 0; k < len(logits); k += 37 * n * n {
		logits[k] = []T{1e3, 100}[k/(n*n)%2]
	}
	return logits, dout
}

func TestSameBitsWhateverGOMAXPROCS(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) { testProcessors[float32](t); testProcessors[float64](t) })
}

func testProcessors[T dtype.Float](t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, cfg := range conventions {
		logits, dout := batch[T](1003, 4)
		runtime.GOMAXPROCS(1)
		out, grad := run(t, logits, dout, 4, cfg)
		for _, procs := range []int{2, 7} {
			runtime.GOMAXPROCS(procs)
			o, g := run(t, logits, dout, 4, cfg)
			requireSameBits(t, out, o)
			requireSameBits(t, grad, g)
		}
	}
}

// A matrix gives the same bits alone as among others, wherever it lies.
func TestSameBitsWhateverThePlace(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) { testPlaces[float32](t); testPlaces[float64](t) })
}

func testPlaces[T dtype.Float](t *testing.T) {
	const tokens = 50
	for _, n := range []int{1, 2, 3, 4, 5, 8} {
		nn := n * n
		for _, cfg := range conventions {
			logits, dout := batch[T](tokens, n)
			out, grad := run(t, logits, dout, n, cfg)
			for _, first := range []int{1, 15, 16, 37, tokens - 1} {
				o, g := run(t, logits[first*nn:], dout[first*nn:], n, cfg)
				requireSameBits(t, out[first*nn:], o)
				requireSameBits(t, grad[first*nn:], g)
			}
		}
	}
}

func TestInPlace(t *testing.T) {
	for _, cfg := range conventions {
		logits, dout := batch[float32](40, 4)
		out, grad := run(t, logits, dout, 4, cfg)
		overLogits, overDout := append([]float32(nil), logits...), append([]float32(nil), dout...)
		require.NoError(t, sinkhorn.Backward(overLogits, overLogits, dout, 4, cfg))
		requireSameBits(t, grad, overLogits)
		require.NoError(t, sinkhorn.Backward(overDout, logits, overDout, 4, cfg))
		requireSameBits(t, grad, overDout)
		require.NoError(t, sinkhorn.Forward(logits, logits, 4, cfg))
		requireSameBits(t, out, logits)
	}
}

func TestSteadyState(t *testing.T) {
	logits := normal[float32](rand.New(rand.NewPCG(1, 1)), 2000*16, 1)
	result := make([]float32, len(logits))
	scratchtest.RequireSteady(t, func() { require.NoError(t, sinkhorn.Forward(result, logits, 4, conventions[0])) })
	scratchtest.RequireSteady(t, func() { require.NoError(t, sinkhorn.Backward(result, logits, logits, 4, conventions[0])) })
}
