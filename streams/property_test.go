package streams

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/floats"
	"pgregory.net/rapid"

	"github.com/mhc-go/mhc"
)

func drawDims(t *rapid.T) Dims {
	return Dims{
		Tokens:   rapid.IntRange(0, 6).Draw(t, "tokens"),
		Streams:  rapid.IntRange(1, 9).Draw(t, "streams"),
		Channels: rapid.IntRange(1, 80).Draw(t, "channels"),
	}
}

func drawNumbers(t *rapid.T, d Dims) numbers {
	return random[float32, float32, float32](d, rapid.Uint64().Draw(t, "seed"))
}

func TestIdentityLeavesTheStreams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDims(t)
		in := drawNumbers(t, d)
		x, n := narrow[float32](in.x), d.Streams
		hres, f, out := make([]float32, d.Tokens*n*n), make([]float32, d.Tokens*d.Channels), make([]float32, len(x))
		for i := range d.Tokens * n {
			hres[i*n+i%n] = 1
		}
		apply := rapid.SampledFrom(applies).Draw(t, "apply")
		require.NoError(t, PostRes(out, x, f, narrow[float32](in.hpost), hres, d, apply))
		require.Equal(t, x, out)
	})
}

// Streams in another order, with the coefficients in that order, give the same
// up to the rounding of sums in another order; PostRes's come in that order too.
func TestPermutedStreams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDims(t)
		in := drawNumbers(t, d)
		n := d.Streams
		order := rapid.Permutation(integers(n)).Draw(t, "order")
		permute := func(v []float64, width int) []float64 { // [N, n, width]
			p := make([]float64, len(v))
			for r := range len(v) / width {
				copy(p[r*width:][:width], v[(r/n*n+order[r%n])*width:])
			}
			return p
		}
		columns := func(v []float64) []float64 { // [N, n, n], the last
			p := make([]float64, len(v))
			for i := range v {
				p[i] = v[i/n*n+order[i%n]]
			}
			return p
		}
		moved := in
		moved.x, moved.hpre, moved.hpost = permute(in.x, d.Channels), permute(in.hpre, 1), permute(in.hpost, 1)
		moved.hres = columns(permute(in.hres, n))
		run := func(in numbers) (xin, xout []float64) {
			x, f := narrow[float32](in.x), narrow[float32](in.f)
			a, b := make([]float32, len(f)), make([]float32, len(x))
			require.NoError(t, Pre(a, x, narrow[float32](in.hpre), d))
			require.NoError(t, PostRes(b, x, f, narrow[float32](in.hpost), narrow[float32](in.hres), d, mhc.ApplyRows))
			return widen(a), widen(b)
		}
		xin, xout := run(in)
		movedIn, movedOut := run(moved)
		require.InDeltaSlice(t, xin, movedIn, 1e-4)
		require.InDeltaSlice(t, permute(xout, d.Channels), movedOut, 1e-4)
	})
}

func integers(n int) []int {
	v := make([]int, n)
	for i := range v {
		v[i] = i
	}
	return v
}

// Expanding and adding up again gives n times the number, exactly where that is
// a float32.
func TestExpandAndSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDims(t)
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		x := make([]float32, d.Tokens*d.Channels)
		for i := range x {
			x[i] = float32(rng.IntN(2001) - 1000)
		}
		streams, sum := make([]float32, len(x)*d.Streams), make([]float32, len(x))
		require.NoError(t, Expand(streams, x, d))
		require.NoError(t, ExpandBackward(sum, streams, d))
		for i, v := range x {
			require.Equal(t, float32(d.Streams)*v, sum[i])
		}
	})
}

// hres transposed and applied transposed is hres.
func TestTransposedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDims(t)
		in := drawNumbers(t, d)
		n := d.Streams
		transposed := make([]float64, len(in.hres))
		for i, v := range in.hres {
			transposed[i/(n*n)*n*n+i%n*n+i/n%n] = v
		}
		run := func(hres []float64, apply mhc.Apply) []float32 {
			out := make([]float32, len(in.x))
			require.NoError(t, PostRes(out, narrow[float32](in.x), narrow[float32](in.f), narrow[float32](in.hpost), narrow[float32](hres), d, apply))
			return out
		}
		require.Equal(t, run(in.hres, mhc.ApplyRows), run(transposed, mhc.ApplyTransposed))
	})
}

// A backward function is the transpose of its forward: <g, J v> = <J^T g, v>.
func TestBackwardIsTheTranspose(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawDims(t)
		in := random[float64, float64, float64](d, rapid.Uint64().Draw(t, "seed"))
		out, dx, df := make([]float64, len(in.x)), make([]float64, len(in.x)), make([]float64, len(in.f))
		apply := rapid.SampledFrom(applies).Draw(t, "apply")
		require.NoError(t, PostRes(out, in.x, in.f, in.hpost, in.hres, d, apply))
		grad := PostResGradients[float64, float64]{X: dx, F: df}
		require.NoError(t, PostResBackward(grad, in.x, in.f, in.hpost, in.hres, in.g, d, apply))
		size := 1 + floats.Norm(out, 2)*floats.Norm(in.g, 2)
		require.InDelta(t, floats.Dot(in.g, out), floats.Dot(dx, in.x)+floats.Dot(df, in.f), 1e-13*size)
	})
}
