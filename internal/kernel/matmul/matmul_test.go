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
	"github.com/mhc-go/mhc/internal/kernel/around"
	"github.com/mhc-go/mhc/internal/kernel/guard"
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

// places puts the operands of a call between guards, offset numbers away from
// where memory is aligned, or, where offset is negative, in memory that ends with
// them.
type places struct {
	t        *testing.T
	offset   int
	requires []func()
}

// offsets are those that every test of a kernel goes through.
var offsets = []int{-1, 0, 1, 7, 8, 15}

func input[A dtype.Storage](p *places, s []A) []A {
	return put(p, s, (*guard.Memory[A]).RequireUnchanged)
}
func output[A dtype.Storage](p *places, s []A) []A {
	return put(p, s, (*guard.Memory[A]).RequireIntact)
}

func put[A dtype.Storage](p *places, s []A, require func(*guard.Memory[A], testing.TB)) []A {
	if p.offset < 0 {
		return ending(p.t, s)
	}
	m := guard.Place(s, p.offset)
	p.requires = append(p.requires, func() { require(m, p.t) })
	return m.Data
}

// check requires that nothing but the outputs has changed.
func (p *places) check() {
	p.t.Helper()
	for _, require := range p.requires {
		require()
	}
}

// everywhere runs f at every offset.
func everywhere(t *testing.T, f func(p *places)) {
	for _, offset := range offsets {
		p := &places{t: t, offset: offset}
		f(p)
		p.check()
	}
}

func TestDot(t *testing.T) { both(t, testDot[float32], testDot[float64]) }

func testDot[A dtype.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for _, m := range []int{4, 8, 24, 28} {
		for _, w := range []int{64, 128, 512} {
			everywhere(t, func(p *places) {
				ld, ldx := w+3, w+5
				x, phi, c := input(p, random[A](rng, Rows*ldx-5)), input(p, random[A](rng, m*ld-3)), output(p, random[A](rng, Rows*m))
				want := slices.Clone(c)
				for r := range Rows {
					for j := range m {
						for k := range w {
							want[r*m+j] += x[r*ldx+k] * phi[j*ld+k]
						}
					}
				}
				Of[A]().Dot(c, x, ldx, phi, ld, m, w, new(byte), 1)
				near(t, want, c)
			})
		}
	}
}

func TestSquares(t *testing.T) { both(t, testSquares[float32], testSquares[float64]) }

// The sums are those of Load, to the last bit.
func testSquares[A dtype.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 7))
	for _, n := range []int{Strip, 2 * Strip, 8 * Strip} {
		for _, rows := range []int{1, 2, Rows} {
			everywhere(t, func(p *places) {
				lds := n + 3
				src, dst := input(p, random[A](rng, rows*lds-3)), output(p, random[A](rng, rows))
				want := make([]A, rows)
				Load(Of[A](), make([]A, rows*n), n, src, lds, make([]A, rows), want, rows, n)
				Of[A]().squares(dst, src, lds, rows, n)
				require.Equal(t, want, slices.Clone(dst))
			})
		}
	}
}

func TestDotSquares(t *testing.T) { both(t, testDotSquares[float32], testDotSquares[float64]) }

// To the last bits of Dot and of squares.
func testDotSquares[A dtype.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 8))
	for _, m := range []int{4, Rows * Cols, 28} {
		for _, w := range []int{Strip, 2 * Strip, 8 * Strip} {
			everywhere(t, func(p *places) {
				ld, ldx := w+3, w+5
				x, phi := input(p, random[A](rng, Rows*ldx-5)), input(p, random[A](rng, m*ld-3))
				c, sums := output(p, random[A](rng, Rows*m)), output(p, random[A](rng, Rows))
				want, squares := slices.Clone(c), make([]A, Rows)
				k := Of[A]()
				k.Dot(want, x, ldx, phi, ld, m, w, new(byte), 1)
				k.squares(squares, x, ldx, Rows, w)
				k.DotSquares(c, sums, x, ldx, phi, ld, m, w, new(byte), 1)
				require.Equal(t, want, slices.Clone(c))
				require.Equal(t, squares, slices.Clone(sums))
			})
		}
	}
}

func TestOuter(t *testing.T) { both(t, testOuter[float32], testOuter[float64]) }

func testOuter[A dtype.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, m := range []int{4, 8, 24} {
		for _, rows := range []int{1, 2, 5, 48} {
			everywhere(t, func(p *places) {
				const ld = Strip + 1
				x, g, d := input(p, random[A](rng, rows*Strip)), input(p, random[A](rng, rows*m)), output(p, random[A](rng, m*ld-1))
				want := slices.Clone(d)
				for t := range rows {
					for j := range m {
						for k := range Strip {
							want[j*ld+k] += g[t*m+j] * x[t*Strip+k]
						}
					}
				}
				Of[A]().Outer(d, ld, x, g, m, rows, new(byte), 1)
				near(t, want, d)
			})
		}
	}
}

func TestExpand(t *testing.T) { both(t, testExpand[float32], testExpand[float64]) }

func testExpand[A dtype.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 3))
	for _, m := range []int{4, 8, 24} {
		for _, rows := range []int{6, 12, 48} {
			everywhere(t, func(p *places) {
				const ld, ldd = Strip + 1, Strip + 2
				x, phi := input(p, random[A](rng, rows*Strip)), input(p, random[A](rng, m*ld-1))
				b, g := input(p, random[A](rng, rows)), input(p, random[A](rng, rows*m))
				dst := output(p, random[A](rng, rows*ldd-2))
				want := slices.Clone(dst)
				for t := range rows {
					for k := range Strip {
						v := b[t] * x[t*Strip+k]
						for j := range m {
							v += g[t*m+j] * phi[j*ld+k]
						}
						want[t*ldd+k] = v
					}
				}
				Of[A]().Expand(dst, ldd, x, b, g, phi, ld, m, rows, false)
				near(t, want, dst)

				// Past the caches go the same bits.
				const apart = 2 * Strip
				past := output(p, make([]A, (rows+1)*apart))
				for !around.Aligned(past, apart) {
					past = past[1:]
				}
				Of[A]().Expand(past, apart, x, b, g, phi, ld, m, rows, true)
				around.Fence()
				for t := range rows {
					require.Equal(p.t, slices.Clone(dst[t*ldd:][:Strip]), slices.Clone(past[t*apart:][:Strip]))
					require.Equal(p.t, make([]A, Strip), slices.Clone(past[t*apart+Strip:][:Strip]))
				}
			})
		}
	}
}

func TestAdd(t *testing.T) { both(t, testAdd[float32], testAdd[float64]) }

func testAdd[A dtype.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	for _, n := range []int{0, 1, 15, 16, 17, 48, 100} {
		everywhere(t, func(p *places) {
			dst, src := output(p, random[A](rng, n)), input(p, random[A](rng, n))
			want := slices.Clone(dst)
			for i, v := range src {
				want[i] += v
			}
			Of[A]().Add(dst, src)
			assert.Equal(t, want, slices.Clone(dst), n)
		})
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
		everywhere(t, func(p *places) {
			const rows = 3
			lds, ldd := n+1, n+2
			stored := make([]S, rows*lds-1)
			dtype.Narrow(stored, random[A](rng, len(stored)))
			src := input(p, stored)
			wide := make([]A, len(src))
			dtype.Widen(wide, src)
			dst, factor, squares := output(p, random[A](rng, rows*ldd-2)), input(p, random[A](rng, rows)), output(p, random[A](rng, rows))
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
			for t := range rows {
				clear(dst[t*ldd:][:n])
			}
			Load(Of[A](), dst, ldd, src, lds, factor, nil, rows, n)
			assert.Equal(t, want, slices.Clone(dst), n)
		})
	}
}

func TestTranspose(t *testing.T) { both(t, testTranspose[float32], testTranspose[float64]) }

func testTranspose[A dtype.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 6))
	for _, rows := range []int{1, 7, 8, 9, 24, 64} {
		for _, cols := range []int{1, 3, 8, 15, 24, 35} {
			everywhere(t, func(p *places) {
				lds, ldd := cols+1, rows+2
				src, dst := input(p, random[A](rng, rows*lds-1)), output(p, random[A](rng, cols*ldd-2))
				want := slices.Clone(dst)
				for i := range rows {
					for j := range cols {
						want[j*ldd+i] = src[i*lds+j]
					}
				}
				Of[A]().Transpose(dst, ldd, src, lds, rows, cols)
				assert.Equal(t, want, slices.Clone(dst), fmt.Sprint(rows, cols))
			})
		}
	}
}

// The kernels of a tier are its own: none falls back to another's.
func TestTiers(t *testing.T) {
	names := map[tier.Tier]string{tier.Go: "portable", tier.AVX2: "AVX2", tier.AVX512: "AVX512"}
	tiertest.Each(t, func(t *testing.T) {
		single, double := Of[float32](), Of[float64]()
		for _, f := range []any{
			single.Dot, single.squares, single.Outer, single.Expand, single.add, single.load, single.loadBF16, single.loadF16,
			double.Dot, double.squares, double.Outer, double.Expand, double.add, double.load,
		} {
			assert.Contains(t, functionName(f), names[tier.Active])
		}
		if tier.Active == tier.AVX512 {
			assert.Contains(t, functionName(single.dotSquares), names[tier.Active])
			assert.Contains(t, functionName(double.dotSquares), names[tier.Active])
		}
	})
}

func functionName(f any) string { return runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name() }
