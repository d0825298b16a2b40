package rmsnorm

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mhc-go/mhc/dtype"
)

func TestForwardRefuses(t *testing.T) {
	good := Dims{Tokens: 2, K: 3, M: 4}
	nan := float32(math.NaN())
	for _, c := range []struct {
		name           string
		mix, r, x, phi int
		d              Dims
		eps            float64
		err            string
	}{
		{"few tokens", 8, 2, 6, 12, Dims{-1, 3, 4, false}, 1, "rmsnorm: Tokens is -1, want at least 0"},
		{"no channels", 8, 2, 6, 12, Dims{2, 0, 4, false}, 1, "rmsnorm: K is 0, want at least 1"},
		{"no columns", 8, 2, 6, 12, Dims{2, 3, -4, false}, 1, "rmsnorm: M is -4, want at least 1"},
		{"short x", 8, 2, 5, 12, good, 1, "rmsnorm: x has 5 numbers, want Tokens*K = 2*3"},
		{"long x", 8, 2, 9, 12, good, 1, "rmsnorm: x has 9 numbers, want Tokens*K = 2*3"},
		{"short phi", 8, 2, 6, 11, good, 1, "rmsnorm: phi has 11 numbers, want K*M = 3*4"},
		{"short r", 8, 1, 6, 12, good, 1, "rmsnorm: r has 1 numbers, want Tokens = 2"},
		{"long mix", 9, 2, 6, 12, good, 1, "rmsnorm: mix has 9 numbers, want Tokens*M = 2*4"},
		{"x without tokens", 0, 0, 6, 12, Dims{0, 3, 4, false}, 1, "rmsnorm: x has 6 numbers, want Tokens*K = 0*3"},
		{"K*M past an int", 0, 0, 0, 0, Dims{0, 1 << 62, 4, false}, 1, "rmsnorm: phi has 0 numbers, want K*M = 4611686018427387904*4"},
		{"N*K past an int", 0, 0, 0, 12, Dims{1 << 62, 3, 4, false}, 1, "rmsnorm: x has 0 numbers, want Tokens*K = 4611686018427387904*3"},
		{"negative eps", 8, 2, 6, 12, good, -1e-9, "rmsnorm: eps is -1e-09, want a finite number, not negative"},
		{"NaN eps", 8, 2, 6, 12, good, math.NaN(), "rmsnorm: eps is NaN, want a finite number, not negative"},
		{"infinite eps", 8, 2, 6, 12, good, math.Inf(1), "rmsnorm: eps is +Inf, want a finite number, not negative"},
	} {
		mix, r := make([]float32, c.mix), make([]float32, c.r)
		fill(mix, nan)
		fill(r, nan)
		assert.EqualError(t, Forward(mix, r, make([]float32, c.x), make([]float32, c.phi), c.d, c.eps), c.err, c.name)
		for _, v := range append(mix, r...) {
			assert.True(t, v != v, "%s: a result was written", c.name)
		}
	}
}

func TestBackwardRefuses(t *testing.T) {
	good := Dims{Tokens: 2, K: 3, M: 4}
	for _, c := range []struct {
		dx, dphi, x, phi, mix, r, dmix int
		d                              Dims
		err                            string
	}{
		{6, 12, 6, 12, 8, 2, 8, Dims{-1, 3, 4, false}, "rmsnorm: Tokens is -1, want at least 0"},
		{6, 12, 6, 12, 8, 2, 8, Dims{2, -3, 4, false}, "rmsnorm: K is -3, want at least 1"},
		{6, 12, 6, 12, 8, 2, 8, Dims{2, 3, 0, false}, "rmsnorm: M is 0, want at least 1"},
		{6, 12, 7, 12, 8, 2, 8, good, "rmsnorm: x has 7 numbers, want Tokens*K = 2*3"},
		{6, 12, 6, 13, 8, 2, 8, good, "rmsnorm: phi has 13 numbers, want K*M = 3*4"},
		{6, 12, 6, 12, 7, 2, 8, good, "rmsnorm: mix has 7 numbers, want Tokens*M = 2*4"},
		{6, 12, 6, 12, 8, 3, 8, good, "rmsnorm: r has 3 numbers, want Tokens = 2"},
		{6, 12, 6, 12, 8, 2, 0, good, "rmsnorm: dmix has 0 numbers, want Tokens*M = 2*4"},
		{5, 12, 6, 12, 8, 2, 8, good, "rmsnorm: dx has 5 numbers, want Tokens*K = 2*3"},
		{0, 12, 6, 12, 8, 2, 8, good, "rmsnorm: dx has 0 numbers, want Tokens*K = 2*3"},
		{6, 24, 6, 12, 8, 2, 8, good, "rmsnorm: dphi has 24 numbers, want K*M = 3*4"},
	} {
		f := func(n int) []float64 { return make([]float64, n) }
		dx, dphi := f(c.dx), f(c.dphi)
		fill(dx, math.NaN())
		fill(dphi, math.NaN())
		assert.EqualError(t, Backward(dx, dphi, f(c.x), f(c.phi), f(c.mix), f(c.r), f(c.dmix), c.d), c.err)
		for _, v := range append(dx, dphi...) {
			assert.True(t, v != v, "%s: a result was written", c.err)
		}
	}
}

func TestRefusesTypes(t *testing.T) {
	const want = ": want r float64 if x is, else float32, and phi like x or r"
	assert.EqualError(t, tryTypes[float32, float64, float32](), "rmsnorm: x is float32, phi float64 and r float32"+want)
	assert.EqualError(t, tryTypes[float32, float32, float64](), "rmsnorm: x is float32, phi float32 and r float64"+want)
	assert.EqualError(t, tryTypes[float64, float64, float32](), "rmsnorm: x is float64, phi float64 and r float32"+want)
	assert.EqualError(t, tryTypes[float64, float32, float64](), "rmsnorm: x is float64, phi float32 and r float64"+want)
	assert.EqualError(t, tryTypes[float32, dtype.BFloat16, float32](), "rmsnorm: x is float32, phi dtype.BFloat16 and r float32"+want)
	assert.EqualError(t, tryTypes[dtype.BFloat16, dtype.Float16, float32](), "rmsnorm: x is dtype.BFloat16, phi float16.Float16 and r float32"+want)
	assert.EqualError(t, tryTypes[dtype.BFloat16, dtype.BFloat16, float64](), "rmsnorm: x is dtype.BFloat16, phi dtype.BFloat16 and r float64"+want)
}

// tryTypes calls both functions with lengths that fit, and returns their error.
func tryTypes[S, P dtype.Storage, A dtype.Float]() error {
	d := Dims{Tokens: 1, K: 1, M: 1}
	one := make([]A, 1)
	err := Forward(one, one, make([]S, 1), make([]P, 1), d, 1)
	if again := Backward(make([]S, 1), make([]P, 1), make([]S, 1), make([]P, 1), one, one, one, d); again == nil || again.Error() != err.Error() {
		return again
	}
	return err
}

func fill[S any](s []S, v S) {
	for i := range s {
		s[i] = v
	}
}

// Any sizes and lengths give results or an error, never a panic.
func FuzzSizes(f *testing.F) {
	f.Add(2, 3, 4, false, 1e-6, uint16(6), uint16(12), uint16(8), uint16(2))
	f.Add(7, 65, 3, true, 0.0, uint16(455), uint16(195), uint16(21), uint16(7))
	f.Add(0, 1, 1, false, 1.0, uint16(0), uint16(1), uint16(0), uint16(0))
	f.Add(-1, -1, -1, true, -1.0, uint16(1), uint16(1), uint16(1), uint16(1))
	f.Add(1<<62, 4, 4, false, 1.0, uint16(0), uint16(16), uint16(0), uint16(0))
	f.Fuzz(func(t *testing.T, tokens, k, m int, transposed bool, eps float64, x, phi, mix, r uint16) {
		d := Dims{tokens, k, m, transposed}
		s := func(n uint16) []float32 { return make([]float32, n) }
		err := Forward(s(mix), s(r), s(x), s(phi), d, eps)
		fits := tokens >= 0 && k > 0 && m > 0 && int(r) == tokens && // what is left fits an int
			k <= math.MaxUint16 && m <= math.MaxUint16 && int(x) == tokens*k && int(phi) == k*m && int(mix) == tokens*m
		assert.Equal(t, fits && eps >= 0 && !math.IsInf(eps, 1), err == nil, "%v", err)
		err = Backward(s(x), s(phi), s(x), s(phi), s(mix), s(r), s(mix), d)
		assert.Equal(t, fits, err == nil, "%v", err)
	})
}
