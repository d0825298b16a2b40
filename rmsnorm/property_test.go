package rmsnorm

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/kernel/around"
	"github.com/mhc-go/mhc/internal/scratch"
	"github.com/mhc-go/mhc/internal/scratch/scratchtest"
	"github.com/mhc-go/mhc/internal/tier/tiertest"
)

// Small sizes of all kinds, with any of the results left out.
func TestAnySize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Dims{
			Tokens:     rapid.IntRange(0, 120).Draw(t, "tokens"),
			K:          rapid.IntRange(2, 150).Draw(t, "K"),
			M:          rapid.IntRange(1, 40).Draw(t, "M"),
			Transposed: rapid.Bool().Draw(t, "transposed"),
		}
		c := newCall[float64, float64, float64](d, 1e-6, rapid.Uint64().Draw(t, "seed"))
		require.NoError(t, Forward(c.mix.s, c.r.s, c.x.s, c.phi.s, d, c.eps))
		dx, dphi := c.dx.s, c.dphi.s
		if rapid.Bool().Draw(t, "without dx") {
			dx = nil
		}
		if rapid.Bool().Draw(t, "without dphi") {
			dphi = nil
		}
		require.NoError(t, Backward(dx, dphi, c.x.s, c.phi.s, c.mix.s, c.r.s, c.dmix.s, d))
		require.LessOrEqual(t, distance(c.mix.s, c.wMix), 1e-12)
		require.LessOrEqual(t, distance(c.r.s, c.wR), 1e-12)
		if dx != nil {
			require.LessOrEqual(t, distance(dx, c.wDx), 1e-12)
		}
		if dphi != nil {
			require.LessOrEqual(t, distance(dphi, c.wDphi), 1e-12)
		}
	})
}

// A token's results have the same bits in any batch and at any place in it.
func TestTokensAreIndependent(t *testing.T) {
	d := Dims{Tokens: 700, K: 1100, M: 15} // enough that the channels are cut for the parts alone
	c := newCall[float32, float32, float32](d, 1e-6, 5)
	tiertest.Each(t, func(t *testing.T) {
		c.run(t)
		for _, part := range [][2]int{{0, 1}, {1, 2}, {3, 10}, {47, 131}, {699, 700}} {
			lo, hi := part[0], part[1]
			d := d
			d.Tokens = hi - lo
			x, dmix := c.x.s[lo*d.K:hi*d.K], c.dmix.s[lo*d.M:hi*d.M]
			mix, r, dx := make([]float32, len(dmix)), make([]float32, d.Tokens), make([]float32, len(x))
			require.NoError(t, Forward(mix, r, x, c.phi.s, d, c.eps))
			require.NoError(t, Backward(dx, nil, x, c.phi.s, mix, r, dmix, d))
			sameBits(t, c.mix.s[lo*d.M:hi*d.M], mix)
			sameBits(t, c.r.s[lo:hi], r)
			sameBits(t, c.dx.s[lo*d.K:hi*d.K], dx)
		}
	})
}

// A dx that is large enough to be written past the caches is that of its halves,
// which are not; rows that are not aligned for it are written as usual.
func TestLargeDx(t *testing.T) {
	for _, k := range []int{4096, 4088} {
		d := Dims{Tokens: 1050, K: k, M: 3}
		half := d
		half.Tokens /= 2
		x, phi := make([]float32, d.Tokens*d.K), make([]float32, d.K*d.M)
		for i := range x {
			x[i] = float32(i%1013) - 506
		}
		for i := range phi {
			phi[i] = float32(i%17) / 16
		}
		mix, r := make([]float32, d.Tokens*d.M), make([]float32, d.Tokens)
		require.NoError(t, Forward(mix, r, x, phi, d, 1e-6))
		whole, halves := make([]float32, len(x)), make([]float32, len(x))
		require.True(t, around.Worth(whole))
		require.False(t, around.Worth(whole[:len(whole)/2]))
		require.Equal(t, k == 4096, around.Aligned(whole, d.K))
		tiertest.Each(t, func(t *testing.T) {
			clear(whole)
			require.NoError(t, Backward(whole, nil, x, phi, mix, r, mix, d))
			for h := range 2 {
				mix, r, x := mix[h*len(mix)/2:][:len(mix)/2], r[h*len(r)/2:][:len(r)/2], x[h*len(x)/2:][:len(x)/2]
				require.NoError(t, Backward(halves[h*len(x):][:len(x)], nil, x, phi, mix, r, mix, half))
			}
			sameBits(t, halves, whole)
		})
	}
}

func sameBits[S dtype.Storage](t *testing.T, want, got []S) {
	t.Helper()
	require.Len(t, got, len(want))
	for i := range want {
		if !bytes.Equal(bitsOf(want[i:i+1]), bitsOf(got[i:i+1])) {
			require.Failf(t, "not the same", "at %d: got %v, want %v", i, got[i], want[i])
		}
	}
}

func TestSameBitsOnAnyProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, d := range []Dims{{Tokens: 1000, K: 700, M: 24}, {Tokens: 5, K: 1600, M: 24}} {
		c := newCall[float32, float32, float32](d, 1e-6, 6)
		tiertest.Each(t, func(t *testing.T) {
			var mix, r, dx, dphi []float32
			for _, processors := range []int{1, 2, 7} {
				runtime.GOMAXPROCS(processors)
				c.run(t)
				if processors == 1 {
					c.check(t)
					mix, r, dx, dphi = slices.Clone(c.mix.s), slices.Clone(c.r.s), slices.Clone(c.dx.s), slices.Clone(c.dphi.s)
				}
				sameBits(t, mix, c.mix.s)
				sameBits(t, r, c.r.s)
				sameBits(t, dx, c.dx.s)
				sameBits(t, dphi, c.dphi.s)
			}
		})
	}
}

func TestTwiceTheTokensTwiceDphi(t *testing.T) {
	d := Dims{Tokens: 333, K: 70, M: 8}
	c := newCall[float64, float64, float64](d, 1e-6, 7)
	double := d
	double.Tokens *= 2
	twice := func(s []float64) []float64 { return slices.Concat(s, s) }
	tiertest.Each(t, func(t *testing.T) {
		c.run(t)
		dphi, want := make([]float64, d.K*d.M), slices.Clone(c.dphi.s)
		require.NoError(t, Backward(nil, dphi, twice(c.x.s), c.phi.s, twice(c.mix.s), twice(c.r.s), twice(c.dmix.s), double))
		for i := range want {
			want[i] *= 2
		}
		assert.LessOrEqual(t, distance(dphi, want), 1e-14)
	})
}

func TestNoTokens(t *testing.T) {
	d := Dims{K: 3, M: 2}
	phi, dphi := make([]float32, 6), []float32{1, 2, 3, 4, 5, 6}
	require.NoError(t, Forward[float32, float32, float32](nil, nil, nil, phi, d, 1e-6))
	require.NoError(t, Backward[float32, float32, float32](nil, dphi, nil, phi, nil, nil, nil, d))
	assert.Equal(t, make([]float32, 6), dphi)
	require.NoError(t, Backward[float32, float32, float32](nil, nil, nil, phi, nil, nil, nil, d))
}

func TestDxInPlaceOfX(t *testing.T) {
	for _, d := range []Dims{{Tokens: 100, K: 1100, M: 24}, {Tokens: 7, K: 33, M: 3}} {
		c := newCall[float32, float32, float32](d, 1e-6, 8)
		b := newCall[dtype.BFloat16, float32, float32](d, 1e-6, 8)
		tiertest.Each(t, func(t *testing.T) {
			inPlace(t, c)
			inPlace(t, b)
		})
	}
}

func inPlace[S dtype.Storage](t *testing.T, c *call[S, float32, float32]) {
	c.run(t)
	x, dphi := slices.Clone(c.x.s), make([]float32, len(c.phi.s))
	require.NoError(t, Backward(x, dphi, x, c.phi.s, c.mix.s, c.r.s, c.dmix.s, c.d))
	sameBits(t, c.dx.s, x)
	sameBits(t, c.dphi.s, dphi)
}

func TestNaNStaysInItsToken(t *testing.T) {
	d := Dims{Tokens: 20, K: 530, M: 8}
	clean := newCall[float32, float32, float32](d, 1e-6, 9)
	dirty := newCall[float32, float32, float32](d, 1e-6, 9)
	const bad = 13
	dirty.x.s[bad*d.K+521] = float32(math.NaN())
	copy(dirty.x.before, dirty.x.all)
	tiertest.Each(t, func(t *testing.T) {
		clean.run(t)
		dirty.run(t)
		for token := range d.Tokens {
			mix, dx := dirty.mix.s[token*d.M:][:d.M], dirty.dx.s[token*d.K:][:d.K]
			if token == bad {
				assertNaN(t, mix)
				assertNaN(t, dirty.r.s[token:token+1])
				assertNaN(t, dx)
				continue
			}
			assert.Equal(t, clean.mix.s[token*d.M:][:d.M], mix, token)
			assert.Equal(t, clean.r.s[token], dirty.r.s[token], token)
			assert.Equal(t, clean.dx.s[token*d.K:][:d.K], dx, token)
		}
		assertNaN(t, dirty.dphi.s)
	})
}

func assertNaN(t *testing.T, s []float32) {
	t.Helper()
	for i, v := range s {
		assert.True(t, v != v, "at %d: %v, want NaN", i, v)
	}
}

// What an earlier call has left in a buffer is not seen.
func TestUsedBuffers(t *testing.T) {
	c := newCall[float32, float32, float32](Dims{Tokens: 7, K: 33, M: 3}, 1e-6, 20)
	tiertest.Each(t, func(t *testing.T) {
		runtime.GC()
		runtime.GC() // the second empties the pools
		for _, b := range []*scratch.Buffers{&tiles, &wides, &products, &squares, &packed, &partials, &upstreams} {
			used, usedWide := slices.Repeat([]float32{float32(math.NaN())}, 1<<16), slices.Repeat([]float64{math.NaN()}, 1<<16)
			scratch.GiveBack(b, &used)
			scratch.GiveBack(b, &usedWide)
		}
		c.run(t)
		c.check(t)
	})
}

// Numbers of any size that the type holds give results as near as ordinary ones.
func TestLargeAndSmall(t *testing.T) {
	d := Dims{Tokens: 9, K: 1000, M: 24}
	for _, scale := range []float64{1e-30, 1e-19, 1e-10, 1e4, 1e10, 1e19, 1e25} {
		for _, eps := range []float64{0, 1e-20} {
			t.Run(fmt.Sprintf("%g, eps %g", scale, eps), func(t *testing.T) {
				scaled(newCall[float32, float32, float32](d, eps, 10), scale)(t)
				scaled(newCall[dtype.BFloat16, dtype.BFloat16, float32](d, eps, 11), scale)(t)
				scaled(newCall[float64, float64, float64](d, eps, 12), scale)(t)
			})
		}
	}
	for _, scale := range []float64{1e-6, 1e4} {
		t.Run(fmt.Sprintf("float16 %g", scale), scaled(newCall[dtype.Float16, dtype.Float16, float32](d, 1e-20, 13), scale))
	}
}

// scaled multiplies a call's x and its rows by different factors near scale.
func scaled[S, P dtype.Storage, A dtype.Float](c *call[S, P, A], scale float64) func(t *testing.T) {
	x := widened(c.x.s)
	for i := range x {
		x[i] *= scale
	}
	dtype.Narrow(c.x.s, x)
	copy(c.x.before, c.x.all)
	c.wMix, c.wR = referenceForward(c.x.s, c.phi.s, c.d, c.eps)
	c.wDx, c.wDphi = referenceBackward(c.x.s, c.phi.s, c.wMix, c.wR, widened(c.dmix.s), c.d)
	return func(t *testing.T) {
		tiertest.Each(t, func(t *testing.T) {
			c.run(t)
			c.check(t)
		})
	}
}

// One token is 0, between others that are not.
func TestZeroToken(t *testing.T) {
	d := Dims{Tokens: 8, K: 65, M: 24}
	const zero = 3
	c := newCall[float32, float32, float32](d, 1e-20, 14)
	clear(c.x.s[zero*d.K:][:d.K])
	scaled(c, 1)(t)
	assert.Equal(t, make([]float32, d.M), c.mix.s[zero*d.M:][:d.M])
	assert.Equal(t, float32(1e10), c.r.s[zero])
	for i, v := range widened(c.dx.s) {
		assert.False(t, math.IsNaN(v) || math.IsInf(v, 0), "dx[%d] = %v", i, v)
	}

	require.NoError(t, Forward(c.mix.s, c.r.s, c.x.s, c.phi.s, d, 0))
	assert.Equal(t, float32(math.Inf(1)), c.r.s[zero])
	assertNaN(t, c.mix.s[zero*d.M:][:d.M])
}

// Numbers of one sign: the sums grow with K or with the tokens, and so does a
// careless error.
func TestLongSums(t *testing.T) {
	for _, d := range []Dims{{Tokens: 2, K: 32768, M: 4}, {Tokens: 20000, K: 8, M: 4}} {
		t.Run(fmt.Sprintf("%+v", d), func(t *testing.T) {
			c := newCall[float32, float32, float32](d, 1e-6, 15)
			rng := rand.New(rand.NewPCG(16, 1))
			for _, f := range []fenced[float32]{c.x, c.phi, c.dmix} {
				for i := range f.s {
					f.s[i] = rng.Float32()
				}
				copy(f.before, f.all)
			}
			scaled(c, 1)(t)
		})
	}
}

func TestChunk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := newLayout[float32](Dims{
			Tokens: rapid.IntRange(1, 1<<33).Draw(t, "tokens"),
			K:      rapid.IntRange(1, 1<<20).Draw(t, "K"),
			M:      rapid.IntRange(1, 600).Draw(t, "M"),
		})
		rows, chunks := chunk(&l)
		require.Less(t, (chunks-1)*rows, l.Tokens)
		require.GreaterOrEqual(t, chunks*rows, l.Tokens)
		require.LessOrEqual(t, rows, chunkTokens)
		require.LessOrEqual(t, (chunks-1)*l.columns, l.Tokens/4, "partial sums larger than a quarter of x")
	})
}

// Every block is gone through once.
func TestApart(t *testing.T) {
	for blocks := 1; blocks < 10; blocks++ {
		l := newLayout[float32](Dims{Tokens: 1, K: blocks * 512, M: 1})
		require.Equal(t, blocks, l.blocks())
		seen := make([]int, blocks)
		for i := range blocks {
			seen[l.apart(i)]++
		}
		require.Equal(t, slices.Repeat([]int{1}, blocks), seen)
	}
}

// The memory that both directions take, beside their arguments, is less than
// the large arguments are.
func TestMemory(t *testing.T) {
	d := Dims{Tokens: 512, K: 1024, M: 24}
	c := newCall[float32, float32, float32](d, 1e-6, 19)
	runtime.GC()
	runtime.GC() // the second empties the pools
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	require.NoError(t, Forward(c.mix.s, c.r.s, c.x.s, c.phi.s, d, c.eps))
	require.NoError(t, Backward(c.dx.s, c.dphi.s, c.x.s, c.phi.s, c.mix.s, c.r.s, c.dmix.s, d))
	runtime.ReadMemStats(&after)
	large := uint64(4 * 2 * (len(c.x.s) + len(c.phi.s)))
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, large/2)
}

func TestSteadyState(t *testing.T) {
	d := Dims{Tokens: 512, K: 1030, M: 15} // that nothing is whole
	c := newCall[float32, float32, float32](d, 1e-6, 21)
	scratchtest.RequireSteady(t, func() { require.NoError(t, Forward(c.mix.s, c.r.s, c.x.s, c.phi.s, d, c.eps)) })
	scratchtest.RequireSteady(t, func() {
		require.NoError(t, Backward(c.dx.s, c.dphi.s, c.x.s, c.phi.s, c.mix.s, c.r.s, c.dmix.s, d))
	})
	b := newCall[dtype.BFloat16, dtype.BFloat16, float32](d, 1e-6, 22)
	scratchtest.RequireSteady(t, func() { require.NoError(t, Forward(b.mix.s, b.r.s, b.x.s, b.phi.s, d, b.eps)) })
	scratchtest.RequireSteady(t, func() {
		require.NoError(t, Backward(b.dx.s, b.dphi.s, b.x.s, b.phi.s, b.mix.s, b.r.s, b.dmix.s, d))
	})
}
