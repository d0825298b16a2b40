package matmul

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/tier"
	"github.com/mhc-go/mhc/internal/tier/tiertest"
)

// both runs f for each type of number, in each tier.
func both(t *testing.T, f32 func(t *testing.T), f64 func(t *testing.T)) {
	tiertest.Each(t, func(t *testing.T) {
		t.Run("float32", f32)
		t.Run("float64", f64)
	})
}

func random[A dtype.Float](rng *rand.Rand, n int) []A {
	s := make([]A, n)
	for i := range s {
		s[i] = A(rng.NormFloat64())
	}
	return s
}

// near requires numbers that are equal but for the rounding of sums of some hundred
// products.
func near[A dtype.Float](t *testing.T, want, got []A) {
	t.Helper()
	tolerance := 5e-5
	if _, ok := any(want).([]float64); ok {
		tolerance = 1e-12
	}
	require.Len(t, got, len(want))
	for i := range want {
		if !(math.Abs(float64(want[i]-got[i])) <= tolerance*(1+math.Abs(float64(want[i])))) {
			require.Failf(t, "not near", "at %d: got %v, want %v", i, got[i], want[i])
		}
	}
}

func TestDot(t *testing.T) { both(t, testDot[float32], testDot[float64]) }

func testDot[A dtype.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, m := range []int{4, 8, 24, 28} {
		for _, w := range []int{64, 128, 512} {
			ld := w + 3
			x, phi, c := ending(t, random[A](rng, Rows*ld)), ending(t, random[A](rng, m*ld)), ending(t, random[A](rng, Rows*m))
			want := slices.Clone(c)
			for r := range Rows {
				for j := range m {
					for k := range w {
						want[r*m+j] += x[r*ld+k] * phi[j*ld+k]
					}
				}
			}
			Of[A]().Dot(c, x[:len(x)-3], phi[:len(phi)-3], ld, m, w, new(byte), 1)
			near(t, want, c)
		}
	}
}

func TestOuter(t *testing.T) { both(t, testOuter[float32], testOuter[float64]) }

func testOuter[A dtype.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, m := range []int{4, 8, 24} {
		for _, rows := range []int{1, 2, 5, 48} {
			const ld = Strip + 1
			x, g, d := ending(t, random[A](rng, rows*ld-1)), ending(t, random[A](rng, rows*m)), ending(t, random[A](rng, m*ld-1))
			want := slices.Clone(d)
			for t := range rows {
				for j := range m {
					for k := range Strip {
						want[j*ld+k] += g[t*m+j] * x[t*ld+k]
					}
				}
			}
			Of[A]().Outer(d, x, g, ld, m, rows, new(byte), 1)
			near(t, want, d)
		}
	}
}

func TestExpand(t *testing.T) { both(t, testExpand[float32], testExpand[float64]) }

func testExpand[A dtype.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	for _, m := range []int{4, 8, 24} {
		for _, rows := range []int{6, 12, 48} {
			w := Strip * (1 + rows/12)
			ld, ldd := w+1, w+2
			x, phi := ending(t, random[A](rng, rows*ld-1)), ending(t, random[A](rng, m*ld-1))
			b, g := ending(t, random[A](rng, rows)), ending(t, random[A](rng, rows*m))
			dst := ending(t, random[A](rng, rows*ldd-2))
			want, inPlace := slices.Clone(dst), slices.Clone(x)
			for t := range rows {
				for k := range w {
					v := b[t] * x[t*ld+k]
					for j := range m {
						v += g[t*m+j] * phi[j*ld+k]
					}
					want[t*ldd+k], inPlace[t*ld+k] = v, v
				}
			}
			Of[A]().Expand(dst, ldd, x, b, g, phi, ld, m, w, rows)
			near(t, want, dst)
			Of[A]().Expand(x, ld, x, b, g, phi, ld, m, w, rows)
			near(t, inPlace, x)
		}
	}
}

func TestAdd(t *testing.T) { both(t, testAdd[float32], testAdd[float64]) }

func testAdd[A dtype.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	for _, n := range []int{0, 1, 15, 16, 17, 48, 100} {
		dst, src := ending(t, random[A](rng, n)), ending(t, random[A](rng, n))
		want := slices.Clone(dst)
		for i, v := range src {
			want[i] += v
		}
		Of[A]().Add(dst, src)
		assert.Equal(t, want, slices.Clone(dst), n)
	}
}

func TestLoad(t *testing.T) {
	both(t, testLoad[float32, float32], testLoad[float64, float64])
	both(t, testLoad[float32, dtype.BFloat16], testLoad[float64, dtype.BFloat16])
	both(t, testLoad[float32, dtype.Float16], testLoad[float64, dtype.Float16])
}

func testLoad[A dtype.Float, S dtype.Storage](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 5))
	for _, n := range []int{1, 15, 16, 17, 63, 64, 65, 100, 128, 512} {
		const rows = 3
		lds, ldd := n+1, n+2
		src := ending(t, make([]S, rows*lds-1))
		dtype.Narrow(src, random[A](rng, len(src)))
		wide := make([]A, len(src))
		dtype.Widen(wide, src)
		dst, factor, squares := ending(t, random[A](rng, rows*ldd-2)), ending(t, random[A](rng, rows)), ending(t, random[A](rng, rows))
		want, sums := slices.Clone(dst), make([]A, rows)
		for t := range rows {
			for k := range n {
				v := wide[t*lds+k]
				sums[t] += v * v
				want[t*ldd+k] = factor[t] * v
			}
		}
		Load(Of[A](), dst, ldd, src, lds, factor, squares, rows, n)
		assert.Equal(t, want, slices.Clone(dst), n)
		near(t, sums, squares)
	}
}

func TestTranspose(t *testing.T) { both(t, testTranspose[float32], testTranspose[float64]) }

func testTranspose[A dtype.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 6))
	for _, rows := range []int{1, 7, 8, 9, 24, 64} {
		for _, cols := range []int{1, 3, 8, 15, 24, 35} {
			lds, ldd := cols+1, rows+2
			src, dst := ending(t, random[A](rng, rows*lds-1)), ending(t, random[A](rng, cols*ldd-2))
			want := slices.Clone(dst)
			for i := range rows {
				for j := range cols {
					want[j*ldd+i] = src[i*lds+j]
				}
			}
			Of[A]().Transpose(dst, ldd, src, lds, rows, cols)
			assert.Equal(t, want, slices.Clone(dst), fmt.Sprint(rows, cols))
		}
	}
}

// The kernels of a tier are its own: none falls back to another's.
func TestTiers(t *testing.T) {
	names := map[tier.Tier]string{tier.Go: "portable", tier.AVX2: "AVX2", tier.AVX512: "AVX512"}
	tiertest.Each(t, func(t *testing.T) {
		single, double := Of[float32](), Of[float64]()
		for _, f := range []any{
			single.Dot, single.Outer, single.Expand, single.add, single.load, single.loadBF16, single.loadF16,
			double.Dot, double.Outer, double.Expand, double.add, double.load,
		} {
			assert.Contains(t, functionName(f), names[tier.Active])
		}
	})
}

func functionName(f any) string { return runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name() }
