package blend

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/tier/tiertest"
)

var (
	rowCounts = []int{1, 2, 3, 4, 5, 7, 8, 9, 17}
	lengths   = []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 127, 133, 200}
)

// canary stands around every row of a test. It is a NaN, so it also spoils a sum
// that it gets into.
const canary = 0x7fc0beef

// guarded makes count rows of n small whole numbers, whose products sum without
// rounding, each in its own place between canaries, offset elements off a 64-byte
// border or close to it.
func guarded[T dtype.Float](rng *rand.Rand, count, n, offset int) (all [][]T, rows [][]T) {
	const guard = 24
	for range count {
		whole := make([]T, guard+offset+n+guard)
		for i := range whole {
			whole[i] = T(math.Float32frombits(canary))
		}
		row := whole[guard+offset:][:n:n]
		for i := range row {
			row[i] = T(rng.IntN(9) - 4)
		}
		all, rows = append(all, whole), append(rows, row)
	}
	return all, rows
}

func clone[T any](rows [][]T) [][]T {
	var c [][]T
	for _, row := range rows {
		c = append(c, append([]T(nil), row...))
	}
	return c
}

// requireSame fails unless a and b have the same bits.
func requireSame[T dtype.Float](t *testing.T, a, b [][]T, name string) {
	t.Helper()
	for r := range a {
		for i := range a[r] {
			if math.Float64bits(float64(a[r][i])) != math.Float64bits(float64(b[r][i])) {
				t.Fatalf("%s: row %d [%d] is %v, want %v", name, r, i, a[r][i], b[r][i])
			}
		}
	}
}

func TestCombine(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) {
		t.Run("float32", testCombine[float32])
		t.Run("float64", testCombine[float64])
	})
}

func testCombine[T dtype.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, outputs := range rowCounts {
		for _, inputs := range rowCounts {
			for k, n := range lengths {
				name := fmt.Sprintf("%d rows of %d rows of %d", outputs, inputs, n)
				srcAll, src := guarded[T](rng, inputs, n, k%5)
				dstAll, dst := guarded[T](rng, outputs, n, k%3)
				_, hs := guarded[T](rng, 1, outputs*inputs, 0)
				want, srcBefore, h := clone(dstAll), clone(srcAll), hs[0]
				for o := range outputs {
					for c := range n {
						s := 0
						for i := range inputs {
							s += int(h[o*inputs+i]) * int(src[i][c])
						}
						want[o][len(want[o])-24-n+c] = T(s)
					}
				}
				Combine(dst, h, src)
				requireSame(t, dstAll, want, name)
				requireSame(t, srcAll, srcBefore, name+", input")
			}
		}
	}
}

func TestDots(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) {
		t.Run("float32", testDots[float32])
		t.Run("float64", testDots[float64])
	})
}

func testDots[T dtype.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for _, outputs := range rowCounts {
		for _, inputs := range rowCounts {
			for k, n := range lengths {
				name := fmt.Sprintf("%d rows with %d rows of %d", outputs, inputs, n)
				gAll, g := guarded[T](rng, outputs, n, k%5)
				xAll, x := guarded[T](rng, inputs, n, k%3)
				dAll, d := guarded[T](rng, 1, outputs*inputs, k%2)
				want, gBefore, xBefore := clone(dAll), clone(gAll), clone(xAll)
				for o := range outputs {
					for i := range inputs {
						s := int(d[0][o*inputs+i])
						for c := range n {
							s += int(g[o][c]) * int(x[i][c])
						}
						want[0][24+k%2+o*inputs+i] = T(s)
					}
				}
				Dots(d[0], g, x)
				requireSame(t, dAll, want, name)
				requireSame(t, gAll, gBefore, name+", left")
				requireSame(t, xAll, xBefore, name+", right")
			}
		}
	}
}

// Every tier is as near to exact sums as the type lets it.
func TestAccuracy(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) {
		t.Run("float32", func(t *testing.T) { testAccuracy[float32](t, 0x1p-24) })
		t.Run("float64", func(t *testing.T) { testAccuracy[float64](t, 0x1p-53) })
	})
}

func testAccuracy[T dtype.Float](t *testing.T, ulp float64) {
	const m, n = 5, 301
	rng := rand.New(rand.NewPCG(5, 6))
	random := func(n int) []T {
		v := make([]T, n)
		for i := range v {
			v[i] = T(rng.NormFloat64())
		}
		return v
	}
	var dst, src [][]T
	for range m {
		dst, src = append(dst, make([]T, n)), append(src, random(n))
	}
	h, d := random(m*m), make([]T, m*m)
	Combine(dst, h, src)
	Dots(d, dst, src)
	for o := range m {
		for c := range n {
			want, size := 0.0, 0.0
			for i := range m {
				p := float64(h[o*m+i]) * float64(src[i][c])
				want += p
				size += math.Abs(p)
			}
			require.InDelta(t, want, float64(dst[o][c]), 2*m*ulp*size, "combine [%d][%d]", o, c)
		}
		for i := range m {
			want, size := 0.0, 0.0
			for c := range n {
				p := float64(dst[o][c]) * float64(src[i][c])
				want += p
				size += math.Abs(p)
			}
			// A sum of n/4 and more sums of at most n/4 numbers.
			require.InDelta(t, want, float64(d[o*m+i]), n/4*ulp*size, "dots [%d][%d]", o, i)
		}
	}
}

// The bits do not depend on where the rows lie.
func TestBitsDoNotDependOnThePlace(t *testing.T) {
	const n = 77
	rng := rand.New(rand.NewPCG(7, 8))
	source := make([]float32, n)
	for i := range source {
		source[i] = rng.Float32()
	}
	at := func(offset int) [][]float32 {
		row := make([]float32, offset+n)[offset:]
		copy(row, source)
		return [][]float32{row, row, row}
	}
	h := []float32{0.1, 0.2, 0.7}
	tiertest.Each(t, func(t *testing.T) {
		var rows, sums [][]float32
		for offset := range 17 {
			x := at(offset)
			dst := [][]float32{make([]float32, n+offset)[offset:]}
			d := make([]float32, 9)
			Combine(dst, h, x)
			Dots(d, x, x)
			rows, sums = append(rows, dst[0]), append(sums, d)
			require.Equal(t, rows[0], dst[0])
			require.Equal(t, sums[0], d)
		}
	})
}

func TestNaNReachesTheResult(t *testing.T) {
	nan := float32(math.NaN())
	tiertest.Each(t, func(t *testing.T) {
		for c := range 40 {
			src := [][]float32{make([]float32, 40), make([]float32, 40)}
			src[1][c] = nan
			dst := [][]float32{make([]float32, 40)}
			Combine(dst, []float32{1, 0}, src)
			for i, v := range dst[0] {
				require.Equal(t, i == c, v != v, "a NaN at %d, the result at %d", c, i)
			}
			d := make([]float32, 2)
			Dots(d, src[:1], src)
			require.Zero(t, d[0])
			require.True(t, d[1] != d[1])
		}
	})
}

func TestRowsOfDifferentLengths(t *testing.T) {
	a, b := make([]float32, 5), make([]float32, 6)
	require.PanicsWithValue(t, "blend: rows of 5 and of 6 numbers", func() { Combine([][]float32{b}, []float32{1}, [][]float32{a}) })
	require.PanicsWithValue(t, "blend: rows of 5 and of 6 numbers", func() { Dots(make([]float32, 2), [][]float32{a}, [][]float32{a, b}) })
	require.Panics(t, func() { Combine([][]float32{a}, nil, [][]float32{a}) })
	require.Panics(t, func() { Dots(nil, [][]float32{a}, [][]float32{a}) })
}

func TestKernelsDoNotAllocate(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) {
		x, d := [][]float32{make([]float32, 40)}, make([]float32, 1)
		require.Zero(t, testing.AllocsPerRun(10, func() {
			Combine(x, d, x)
			Dots(d, x, x)
		}))
	})
}

// The shapes of four streams: the forward mix, and the products of its backward.
func BenchmarkBlend(b *testing.B) {
	tiertest.Each(b, func(b *testing.B) {
		b.Run("float32", benchmark[float32])
		b.Run("float64", benchmark[float64])
	})
}

func benchmark[T dtype.Float](b *testing.B) {
	const n = 256
	rows := func(count int) (r [][]T) {
		for range count {
			r = append(r, make([]T, n))
		}
		return r
	}
	for _, m := range [][2]int{{1, 4}, {4, 5}, {16, 17}} {
		dst, src, h := rows(m[0]), rows(m[1]), make([]T, m[0]*m[1])
		for name, f := range map[string]func(){
			"Combine": func() { Combine(dst, h, src) },
			"Dots":    func() { Dots(h, dst, src) },
		} {
			b.Run(fmt.Sprintf("%s/%dx%d", name, m[0], m[1]), func(b *testing.B) {
				for b.Loop() {
					f()
				}
				flops := 2 * float64(len(h)*n) * float64(b.N)
				b.ReportMetric(flops/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
			})
		}
	}
}
