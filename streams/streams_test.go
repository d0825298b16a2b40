package streams

import (
	"math"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/kernel/around"
	"github.com/mhc-go/mhc/internal/scratch/scratchtest"
	"github.com/mhc-go/mhc/internal/tier/tiertest"
	"github.com/mhc-go/mhc/rmsnorm"
)

type (
	bf16 = dtype.BFloat16
	f16  = dtype.Float16
)

// shapes are awkward ones, among them some of several tiles and of several
// pieces of work.
func shapes() []Dims {
	var all []Dims
	for _, n := range []int{1, 2, 3, 4, 5, 8, 16} {
		for k, c := range []int{1, 7, 32, 33} {
			all = append(all, Dims{[]int{0, 1, 2, 20}[(n+k)%4], n, c})
		}
	}
	return append(all, Dims{20, 4, 33}, Dims{3, 4, 1100}, Dims{2, 16, 200}, Dims{130, 2, 300}, Dims{1, 40, 70})
}

// config is a head's settings; both layouts of phi come up in turn.
func config(i int) mhc.HeadConfig {
	return mhc.HeadConfig{RMSEps: 1e-6, PreEps: 1e-3, Phi: []mhc.PhiLayout{mhc.PhiKM, mhc.PhiMK}[i%2]}
}

var applies = []mhc.Apply{mhc.ApplyRows, mhc.ApplyTransposed}

// The error of every result against float64 is within the bounds that the module
// promises (1e-12, and 1e-5 where float32 is computed in) with room to spare; a
// 16-bit result is as near as the exact result's own rounding is.
func TestAccuracy(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) {
		t.Run("float64", accuracy[float64, float64, float64](1e-14))
		t.Run("float32", accuracy[float32, float32, float32](1e-6))
		t.Run("bfloat16", accuracy[bf16, bf16, float32](1e-6))
		t.Run("float16", accuracy[f16, f16, float32](1e-6))
		t.Run("bfloat16 with a float32 phi", accuracy[bf16, float32, float32](1e-6))
	})
}

func accuracy[S, P dtype.Storage, A dtype.Float](bound float64) func(t *testing.T) {
	return func(t *testing.T) {
		for i, d := range shapes() {
			for j, apply := range applies {
				cfg := config(i + j)
				in := random[S, P, A](d, uint64(i))
				want := reference(in, d, apply, cfg)
				for name, got := range compute[S, P, A](t, in, d, apply, cfg) {
					rounding := 0.0
					if inSixteenBits[name] {
						rounding = distance(widen(narrow[S](want[name])), want[name], nil)
					} else if name == "head.dphi" {
						rounding = distance(widen(narrow[P](want[name])), want[name], nil)
					}
					require.Len(t, got, len(want[name]), name)
					assert.LessOrEqual(t, distance(got, want[name], want["sizes of "+name]), 1.01*rounding+bound, "%s of %s", name, describe(d, apply, cfg))
				}
			}
		}
	}
}

// A 16-bit result is the float32 result of the same numbers, rounded: to the bit,
// where no sum over channels comes in between.
func TestSixteenBitResultsAreRoundedOnce(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) {
		t.Run("bfloat16", roundedOnce[bf16])
		t.Run("float16", roundedOnce[f16])
	})
}

func roundedOnce[S dtype.Storage](t *testing.T) {
	for i, d := range shapes() {
		in := random[S, S, float32](d, uint64(i))
		wide := compute[float32, float32, float32](t, in, d, mhc.ApplyRows, config(i))
		got := compute[S, S, float32](t, in, d, mhc.ApplyRows, config(i))
		for _, name := range []string{"expand", "expand.dx", "pre", "pre.dx", "postres", "postres.dx", "postres.df"} {
			require.True(t, slices.Equal(widen(narrow[S](wide[name])), got[name]), "%s of %v", name, d)
		}
	}
}

func TestSameBitsForAnyNumberOfProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	tiertest.Each(t, func(t *testing.T) {
		t.Run("float32", sameBits[float32, float32])
		t.Run("float64", sameBits[float64, float64])
		t.Run("bfloat16", sameBits[bf16, float32])
	})
}

func sameBits[S dtype.Storage, A dtype.Float](t *testing.T) {
	for i, d := range []Dims{{300, 4, 96}, {120, 1, 1500}} {
		require.Greater(t, d.Tokens, 2*pieceTokens(d.Tokens, (3*d.Streams+2)*d.Channels*2), "%v must be several pieces of work", d)
		in := random[S, S, A](d, 1)
		runtime.GOMAXPROCS(1)
		want := compute[S, S, A](t, in, d, mhc.ApplyRows, config(i))
		for _, procs := range []int{2, 7} {
			runtime.GOMAXPROCS(procs)
			for name, got := range compute[S, S, A](t, in, d, mhc.ApplyRows, config(i)) {
				require.True(t, slices.Equal(want[name], got), "%s, %d processors", name, procs)
			}
		}
	}
}

// What a token gets does not depend on the tokens beside it.
func TestTokensAreIndependent(t *testing.T) {
	d := Dims{11, 4, 50}
	in := random[float32, float32, float32](d, 3)
	all := compute[float32, float32, float32](t, in, d, mhc.ApplyRows, config(0))
	for token := range d.Tokens {
		one := in
		cut := func(v []float64) []float64 {
			size := len(v) / d.Tokens
			return v[token*size:][:size]
		}
		one.x, one.g, one.f, one.up = cut(in.x), cut(in.g), cut(in.f), cut(in.up)
		one.hpre, one.hpost, one.hres = cut(in.hpre), cut(in.hpost), cut(in.hres)
		alone := compute[float32, float32, float32](t, one, Dims{1, d.Streams, d.Channels}, mhc.ApplyRows, config(0))
		for name, got := range alone {
			if !slices.Contains([]string{"head.dphi", "head.db", "head.dalpha"}, name) {
				require.Equal(t, cut(all[name]), got, "%s of token %d", name, token)
			}
		}
	}
}

// Leaving out results does not change the others.
func TestAnySubsetOfGradients(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) {
		t.Run("float32", subsets[float32])
		t.Run("bfloat16", subsets[bf16])
	})
}

func subsets[S dtype.Storage](t *testing.T) {
	d, cfg := Dims{5, 3, 37}, config(0)
	big, one, n, N := d.Tokens*d.Streams*d.Channels, d.Tokens*d.Channels, d.Streams, d.Tokens
	in := random[S, S, float32](d, 9)
	x, g, f, up := narrow[S](in.x), narrow[S](in.g), narrow[S](in.f), narrow[S](in.up)
	hpre, hpost, hres := narrow[float32](in.hpre), narrow[float32](in.hpost), narrow[float32](in.hres)
	head := HeadInputs[S, S, float32]{x, narrow[S](in.phi), narrow[float32](in.b), narrow[float32](in.alpha)}
	kept := HeadKept[float32]{make([]float32, N*n), make([]float32, N)}
	require.NoError(t, Head(make([]S, one), kept, head, d, cfg))
	for _, apply := range applies {
		want := compute[S, S, float32](t, in, d, apply, cfg)
		for set := range 16 {
			chosen := func(bit int, n int) int { return n * (set >> bit & 1) }
			grad := PostResGradients[S, float32]{
				X: pick[S](chosen(0, big)), F: pick[S](chosen(1, one)), HPost: pick[float32](chosen(2, N*n)), HRes: pick[float32](chosen(3, N*n*n)),
			}
			require.NoError(t, PostResBackward(grad, x, f, hpost, hres, g, d, apply))
			requireChosen(t, want["postres.dx"], grad.X)
			requireChosen(t, want["postres.df"], grad.F)
			requireChosen(t, want["postres.dhpost"], grad.HPost)
			requireChosen(t, want["postres.dhres"], grad.HRes)

			dx, dhpre := pick[S](chosen(0, big)), pick[float32](chosen(1, N*n))
			require.NoError(t, PreBackward(dx, dhpre, x, hpre, up, d))
			requireChosen(t, want["pre.dx"], dx)
			requireChosen(t, want["pre.dhpre"], dhpre)

			dhead := HeadInputs[S, S, float32]{
				X: pick[S](chosen(0, big)), Phi: pick[S](chosen(1, n*d.Channels*n)), B: pick[float32](chosen(2, n)), Alpha: pick[float32](chosen(3, 1)),
			}
			require.NoError(t, HeadBackward(dhead, head, kept, up, d, cfg))
			requireChosen(t, want["head.dx"], dhead.X)
			requireChosen(t, want["head.dphi"], dhead.Phi)
			requireChosen(t, want["head.db"], dhead.B)
			requireChosen(t, want["head.dalpha"], dhead.Alpha)
		}
	}
}

// pick makes a slice, nil for no numbers.
func pick[T any](n int) []T {
	if n == 0 {
		return nil
	}
	return make([]T, n)
}

func requireChosen[T dtype.Storage](t *testing.T, want []float64, got []T) {
	t.Helper()
	if got != nil {
		require.Equal(t, want, widen(got))
	}
}

// The head's gradients are those of its parts, composed.
func TestHeadBackwardIsTheCompositionOfItsParts(t *testing.T) {
	d, cfg := Dims{6, 4, 21}, config(0)
	in := random[float64, float64, float64](d, 5)
	got := compute[float64, float64, float64](t, in, d, mhc.ApplyRows, cfg)
	N, n := d.Tokens, d.Streams
	w, dmix := make([]float64, N*n), make([]float64, N*n)
	for i, mix := range got["head.mix"] {
		w[i] = 1/(1+math.Exp(-in.alpha[0]*mix-in.b[i%n])) + cfg.PreEps
	}
	direct, dw := make([]float64, len(in.x)), make([]float64, N*n)
	require.NoError(t, PreBackward(direct, dw, in.x, w, in.up, d))
	for i, v := range dw {
		s := w[i] - cfg.PreEps
		dmix[i] = v * s * (1 - s) * in.alpha[0]
	}
	dx, dphi := make([]float64, len(in.x)), make([]float64, len(in.phi))
	require.NoError(t, rmsnorm.Backward(dx, dphi, in.x, in.phi, got["head.mix"], got["head.r"], dmix,
		rmsnorm.Dims{Tokens: N, K: n * d.Channels, M: n}))
	for i := range dx {
		dx[i] += direct[i]
	}
	assert.Less(t, distance(got["head.dx"], dx, nil), 1e-14)
	assert.Less(t, distance(got["head.dphi"], dphi, nil), 1e-14)
}

// float32 squares of these overflow or vanish; the head and its gradients do not.
func TestHeadOfHugeAndTinyStreams(t *testing.T) {
	d := Dims{3, 4, 40}
	cfg := mhc.HeadConfig{RMSEps: 0}
	for _, scale := range []float64{1e-25, 1e-12, 1e12, 1e25} {
		in := random[float32, float32, float32](d, 8)
		for i := range in.x {
			in.x[i] = float64(float32(in.x[i] * scale))
		}
		for i := range in.up {
			in.up[i] = float64(float32(in.up[i] / 1e5))
		}
		want := reference(in, d, mhc.ApplyRows, cfg)
		got := compute[float32, float32, float32](t, in, d, mhc.ApplyRows, cfg)
		for _, name := range []string{"head", "head.mix", "head.r", "head.dx", "head.dphi", "head.db", "head.dalpha"} {
			assert.Less(t, distance(got[name], want[name], nil), 1e-5, "%s of x near %v", name, scale)
		}
	}
}

func TestNaNReachesWhatItIsATermOf(t *testing.T) {
	d := Dims{3, 2, 20}
	nan := math.NaN()
	tiertest.Each(t, func(t *testing.T) {
		in := random[float32, float32, float32](d, 4)
		const token, stream, channel = 1, 1, 17
		in.x[(token*d.Streams+stream)*d.Channels+channel] = nan
		for i := range in.hres {
			in.hres[i], in.hpre[i/2] = 0, 0
		}
		r := compute[float32, float32, float32](t, in, d, mhc.ApplyRows, config(0))
		for i, v := range r["pre"] {
			assert.Equal(t, i == token*d.Channels+channel, math.IsNaN(v), "pre [%d]", i)
		}
		for i, v := range r["postres"] {
			here := i/d.Channels/d.Streams == token && i%d.Channels == channel
			assert.Equal(t, here, math.IsNaN(v), "postres [%d]", i)
		}
		for i, v := range r["pre.dhpre"] {
			assert.Equal(t, i == token*d.Streams+stream, math.IsNaN(v), "dhpre [%d]", i)
		}
		for i, v := range r["postres.dhres"] {
			here := i/d.Streams/d.Streams == token && i%d.Streams == stream
			assert.Equal(t, here, math.IsNaN(v), "dhres [%d]", i)
		}
		for i, v := range r["head.dx"] {
			assert.Equal(t, i/d.Channels/d.Streams == token, math.IsNaN(v), "head dx [%d]", i)
		}
		assert.True(t, math.IsNaN(r["head.dalpha"][0]))
		assert.False(t, slices.ContainsFunc(r["postres.dx"], math.IsNaN))
	})
}

func TestSteadyState(t *testing.T) {
	const tokens = 2000
	d := Dims{tokens, 4, 24}
	big, one, n := tokens*4*24, tokens*24, tokens*4
	x, out := make([]bf16, big), make([]bf16, big)
	f, df := make([]bf16, one), make([]bf16, one)
	h, dh, res, dres := make([]float32, n), make([]float32, n), make([]float32, 4*n), make([]float32, 4*n)
	grad := PostResGradients[bf16, float32]{out, df, dh, dres}
	head := HeadInputs[bf16, bf16, float32]{X: x, Phi: make([]bf16, 4*24*4), B: make([]float32, 4), Alpha: make([]float32, 1)}
	kept := HeadKept[float32]{make([]float32, n), make([]float32, tokens)}
	dhead := HeadInputs[bf16, bf16, float32]{X: out, B: make([]float32, 4), Alpha: make([]float32, 1)}
	for _, call := range []func() error{
		func() error { return Pre(df, x, h, d) },
		func() error { return PreBackward(out, dh, x, h, f, d) },
		func() error { return Expand(out, f, d) },
		func() error { return ExpandBackward(df, x, d) },
		func() error { return PostRes(out, x, f, h, res, d, mhc.ApplyRows) },
		func() error { return PostResBackward(grad, x, f, h, res, x, d, mhc.ApplyRows) },
		func() error { return Head(df, kept, head, d, config(0)) },
		func() error { return HeadBackward(dhead, head, kept, f, d, config(0)) },
	} {
		scratchtest.RequireSteady(t, func() { require.NoError(t, call()) })
	}
}

// A result that is large enough to be written past the caches is that of its
// halves, which are not.
func TestLargeResults(t *testing.T) {
	d := Dims{1050, 4, 1024}
	require.True(t, around.Worth(make([]float32, d.length(shapeNnC))))
	tiertest.Each(t, func(t *testing.T) {
		x, f := make([]float32, d.length(shapeNnC)), make([]float32, d.length(shapeNC))
		for i := range x {
			x[i] = float32(i % 1013)
		}
		h, res := make([]float32, d.length(shapeNn)), make([]float32, d.length(shapeNnn))
		for i := range res {
			res[i] = float32(i%17) / 16
		}
		whole, halves := make([]float32, len(x)), make([]float32, len(x))
		require.NoError(t, PostRes(whole, x, f, h, res, d, mhc.ApplyRows))
		half := d
		half.Tokens /= 2
		for i := range 2 {
			part := func(v []float32) []float32 { return v[i*len(v)/2:][:len(v)/2] }
			require.NoError(t, PostRes(part(halves), part(x), part(f), part(h), part(res), half, mhc.ApplyRows))
		}
		require.True(t, slices.Equal(halves, whole))
	})
}

func TestTileWidth(t *testing.T) {
	assert.Equal(t, 33, tileWidth[float32](5, 33))
	assert.Equal(t, 384, tileWidth[float32](14, 2560))  // 7 tiles, the last 256 wide
	assert.Equal(t, 640, tileWidth[bf16](14, 2560))     // 4 equal ones, where 832 would leave one of 64
	assert.Equal(t, 64, tileWidth[float64](1000, 2560)) // never narrower
	for rows := 1; rows < 60; rows++ {
		for channels := 1; channels < 3000; channels += 37 {
			width := tileWidth[float32](rows, channels)
			assert.True(t, width == channels || width%tileAlign == 0, "%d rows of %d: %d", rows, channels, width)
			assert.True(t, width <= tileAlign || 4*rows*width <= tileBytes, "%d rows of %d: %d", rows, channels, width)
		}
	}
}

// What a sigmoid near 1 leaves is its slope, not the rounding of 1 - s.
func TestSlopeOfSaturatedHead(t *testing.T) {
	for _, b := range []float64{0, 3, 12, 20, 30, 40, 700} {
		_, slope := headWeights([]float64{0}, []float64{b}, 1, mhc.HeadConfig{})
		e := math.Exp(-b)
		assert.InEpsilon(t, e/((1+e)*(1+e)), (*slope)[0], 1e-14, "logit %v", b)
	}
}
