package dtype

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/x448/float16"
	"pgregory.net/rapid"

	"github.com/mhc-go/mhc/internal/tier/tiertest"
)

const last = 1<<16 - 1

func TestBFloat16RoundTripsEveryValue(t *testing.T) {
	for i := range last + 1 {
		b := BFloat16(i)
		back := BFloat16FromFloat32(b.Float32())
		if b&0x7fff > 0x7f80 { // NaN
			require.True(t, math.IsNaN(float64(b.Float32())), "%#04x", i)
			require.Equal(t, b|0x40, back, "%#04x", i)
			continue
		}
		require.Equal(t, b, back, "%#04x", i)
	}
}

// Between any two neighbours, the middle goes to the even one, and what lies just
// beside the middle to the nearer one.
func TestBFloat16RoundsToNearestEven(t *testing.T) {
	for i := range 0x7f80 { // every finite value of positive sign and the one after it
		for _, sign := range []uint32{0, 0x8000} {
			lo, hi := BFloat16(uint32(i)|sign), BFloat16(uint32(i+1)|sign)
			middle := uint32(lo)<<16 | 0x8000
			even := lo
			if lo&1 == 1 {
				even = hi
			}
			require.Equal(t, lo, BFloat16FromFloat32(math.Float32frombits(middle-1)), "%#04x", i)
			require.Equal(t, even, BFloat16FromFloat32(math.Float32frombits(middle)), "%#04x", i)
			require.Equal(t, hi, BFloat16FromFloat32(math.Float32frombits(middle+1)), "%#04x", i)
		}
	}
}

func TestBFloat16SpecialValues(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		in   float32
		want BFloat16
	}{
		{0, 0}, {float32(math.Copysign(0, -1)), 0x8000}, {1, 0x3f80}, {-2, 0xc000},
		{inf, 0x7f80}, {-inf, 0xff80},
		{math.MaxFloat32, 0x7f80}, {-math.MaxFloat32, 0xff80}, // nearer to the next power of two
		{math.Float32frombits(0x7f7f7fff), 0x7f7f}, // the largest that does not overflow
		{math.SmallestNonzeroFloat32, 0},
		{math.Float32frombits(0x00008001), 1},      // a subnormal
		{math.Float32frombits(0x7f800001), 0x7fc0}, // a NaN whose payload is cut off
		{math.Float32frombits(0xffa00000), 0xffe0},
	} {
		assert.Equal(t, c.want, BFloat16FromFloat32(c.in), "%v (%#08x)", c.in, math.Float32bits(c.in))
	}
}

// awkward is every 16-bit value's neighbourhood as float32: the value, the middle
// to the next one, and the two numbers beside that, for both 16-bit types.
func awkward() []float32 {
	var all []float32
	for i := range last + 1 {
		middle := uint32(i)<<16 | 0x8000
		for _, b := range []uint32{uint32(i) << 16, middle - 1, middle, middle + 1} {
			all = append(all, math.Float32frombits(b))
		}
		b := math.Float32bits(Float16(i).Float32())
		for _, b := range []uint32{b, b + 0xfff, b + 0x1000, b + 0x1001} {
			all = append(all, math.Float32frombits(b))
		}
	}
	for b := uint32(0); b < 1<<25; b += 977 { // subnormals and small numbers
		all = append(all, math.Float32frombits(b), math.Float32frombits(b|1<<31))
	}
	return all
}

// Every tier must give the scalar conversions' bits.
func TestNarrowEqualsTheScalarConversion(t *testing.T) {
	src := awkward()
	bf, f := make([]BFloat16, len(src)), make([]Float16, len(src))
	tiertest.Each(t, func(t *testing.T) {
		require.Equal(t, len(src), Narrow(bf, src))
		require.Equal(t, len(src), Narrow(f, src))
		for i, v := range src {
			if want := BFloat16FromFloat32(v); bf[i] != want {
				t.Fatalf("bfloat16 of %#08x is %#04x, want %#04x", math.Float32bits(v), bf[i], want)
			}
			if want := float16.Fromfloat32(v); f[i] != want {
				t.Fatalf("float16 of %#08x is %#04x, want %#04x", math.Float32bits(v), f[i], want)
			}
		}
	})
}

func TestWidenEqualsTheScalarConversion(t *testing.T) {
	bf, f := make([]BFloat16, last+1), make([]Float16, last+1)
	for i := range bf {
		bf[i], f[i] = BFloat16(i), Float16(i)
	}
	got32, got64 := make([]float32, len(bf)), make([]float64, len(bf))
	tiertest.Each(t, func(t *testing.T) {
		require.Equal(t, len(bf), Widen(got32, bf))
		require.Equal(t, len(bf), Widen(got64, bf))
		for i, v := range bf {
			require.Equal(t, math.Float32bits(v.Float32()), math.Float32bits(got32[i]), "%#04x", i)
			require.Equal(t, math.Float64bits(float64(v.Float32())), math.Float64bits(got64[i]), "%#04x", i)
		}
		require.Equal(t, len(f), Widen(got32, f))
		require.Equal(t, len(f), Widen(got64, f))
		for i, v := range f {
			require.Equal(t, math.Float32bits(v.Float32()), math.Float32bits(got32[i]), "%#04x", i)
			require.Equal(t, math.Float64bits(float64(v.Float32())), math.Float64bits(got64[i]), "%#04x", i)
		}
	})
}

// A float64 just past the middle of two neighbours is a float32 that is exactly
// the middle: rounding twice would go to the even neighbour.
func TestNarrowRoundsFloat64Once(t *testing.T) {
	bf, f := make([]BFloat16, 4), make([]Float16, 4)
	middle := 1 + 0x1p-8
	Narrow(bf, []float64{middle, middle + 0x1p-50, middle - 0x1p-50, -(middle + 0x1p-50)})
	assert.Equal(t, []BFloat16{0x3f80, 0x3f81, 0x3f80, 0xbf81}, bf)
	middle = 1 + 0x1p-11
	Narrow(f, []float64{middle, middle + 0x1p-50, middle - 0x1p-50, -(middle + 0x1p-50)})
	assert.Equal(t, []Float16{0x3c00, 0x3c01, 0x3c00, 0xbc01}, f)

	nan := math.NaN()
	Narrow(bf, []float64{math.Inf(-1), 1e300, nan, 1e-300})
	assert.Equal(t, []BFloat16{0xff80, 0x7f80, 0x7fc0, 0}, bf)
	Narrow(f, []float64{math.Inf(-1), 65520, nan, -1e-300})
	assert.Equal(t, []Float16{0xfc00, 0x7c00, 0x7e00, 0x8000}, f)
}

// The nearest 16-bit value, found with arbitrary precision.
func TestNarrowIsNearest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Float64Range(-60000, 60000).Draw(t, "v")
		var bf [1]BFloat16
		var f [1]Float16
		Narrow(bf[:], []float64{v})
		Narrow(f[:], []float64{v})
		nearest(t, v, float64(bf[0].Float32()), float64((bf[0] - 1).Float32()), float64((bf[0] + 1).Float32()))
		nearest(t, v, float64(f[0].Float32()), float64((f[0] - 1).Float32()), float64((f[0] + 1).Float32()))
	})
}

func nearest(t *rapid.T, v, got float64, others ...float64) {
	distance := func(x float64) *big.Float {
		d := new(big.Float).SetPrec(2000).SetFloat64(v)
		return d.Abs(d.Sub(d, big.NewFloat(x)))
	}
	for _, other := range others {
		if !math.IsNaN(other) && !math.IsInf(other, 0) && distance(other).Cmp(distance(got)) < 0 {
			t.Fatalf("%v became %v, but %v is nearer", v, got, other)
		}
	}
}

func TestFloatConversions(t *testing.T) {
	f32, f64 := []float32{1.5, -2, float32(math.Inf(1))}, []float64{1.5, -2, math.Inf(1)}
	got32, got64 := make([]float32, 3), make([]float64, 3)
	Widen(got64, f32)
	assert.Equal(t, f64, got64)
	Narrow(got32, f64)
	assert.Equal(t, f32, got32)
	Widen(got32, []float64{1 + 0x1p-24, 1 + 3*0x1p-24, 1e300})
	assert.Equal(t, []float32{1, 1 + 0x1p-22, float32(math.Inf(1))}, got32)
	Widen(got32, f32)
	assert.Equal(t, f32, got32)
	Narrow(got64, f64)
	assert.Equal(t, f64, got64)
}

// Every length and alignment, between canaries that must survive.
func TestConversionsStayInTheirSlices(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) {
		for n := range 70 {
			for offset := range 3 {
				guarded(t, n, offset, BFloat16FromFloat32)
				guarded(t, n, offset, float16.Fromfloat32)
			}
		}
	})
}

func guarded[S BFloat16 | Float16](t *testing.T, n, offset int, scalar func(float32) S) {
	const guard = 8
	low, high := guard+offset, guard+offset+n
	name := fmt.Sprintf("%T, %d elements at %d", *new(S), n, offset)
	wide, narrow := make([]float32, high+guard), make([]S, high+guard)
	for i := range wide {
		wide[i], narrow[i] = float32(i)+0.123, 0x4242
	}
	src := wide[low:high]
	require.Equal(t, n, Narrow(narrow[low:high], src))
	for i, v := range narrow {
		want := S(0x4242)
		if i >= low && i < high {
			want = scalar(float32(i) + 0.123)
		}
		require.Equal(t, want, v, "%s, narrowed [%d]", name, i)
	}
	for i, v := range wide {
		require.Equal(t, float32(i)+0.123, v, "%s, input [%d]", name, i)
		wide[i] = 7
	}
	require.Equal(t, n, Widen(src, narrow[low:high]))
	for i, v := range wide {
		if i < low || i >= high {
			require.Equal(t, float32(7), v, "%s, widened [%d]", name, i)
		} else {
			require.InEpsilon(t, float32(i)+0.123, v, 0x1p-8, "%s, widened [%d]", name, i)
		}
	}
}

// The shorter length counts, and nothing is written past it.
func TestLengthsThatDiffer(t *testing.T) {
	dst := []float32{9, 9, 9}
	assert.Equal(t, 2, Widen(dst, []BFloat16{0x3f80, 0x4000}))
	assert.Equal(t, []float32{1, 2, 9}, dst)
	assert.Equal(t, 3, Widen(dst, []float64{4, 5, 6, 7}))
	assert.Equal(t, []float32{4, 5, 6}, dst)
	half := []Float16{0, 0}
	assert.Equal(t, 1, Narrow(half, []float32{1}))
	assert.Equal(t, []Float16{0x3c00, 0}, half)
	assert.Zero(t, Narrow([]BFloat16(nil), dst))
	assert.Zero(t, Widen(dst, []Float16(nil)))
}

// Slices longer than one stretch.
func TestLongConversion(t *testing.T) {
	src := make([]float32, 2*stretch+5)
	for i := range src {
		src[i] = float32(i % 251)
	}
	narrowed, back := make([]BFloat16, len(src)), make([]float32, len(src))
	assert.Equal(t, len(src), Narrow(narrowed, src))
	assert.Equal(t, len(src), Widen(back, narrowed))
	assert.Equal(t, src, back)
}

func TestConversionsDoNotAllocate(t *testing.T) {
	wide, wider := make([]float32, 100), make([]float64, 100)
	bf, f := make([]BFloat16, 100), make([]Float16, 100)
	assert.Zero(t, testing.AllocsPerRun(10, func() {
		Narrow(bf, wide)
		Widen(wide, bf)
		Narrow(f, wider)
		Widen(wider, f)
		Widen(wider, wide)
	}))
}

func BenchmarkConvert(b *testing.B) {
	const n = 4096
	wide, bf, f := make([]float32, n), make([]BFloat16, n), make([]Float16, n)
	for i := range wide {
		wide[i] = float32(i) / 7
	}
	tiertest.Each(b, func(b *testing.B) {
		for _, c := range []struct {
			name string
			f    func()
		}{
			{"WidenBFloat16", func() { Widen(wide, bf) }},
			{"WidenFloat16", func() { Widen(wide, f) }},
			{"NarrowBFloat16", func() { Narrow(bf, wide) }},
			{"NarrowFloat16", func() { Narrow(f, wide) }},
		} {
			b.Run(c.name, func(b *testing.B) {
				b.SetBytes(6 * n)
				for b.Loop() {
					c.f()
				}
			})
		}
	})
}
