package blend

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/tier/tiertest"
)

var (
	rowCounts = []int{1, 2, 3, 4, 5, 6, 7, 12}
	lengths   = []int{0, 1, 3, 8, 15, 16, 17, 31, 33, 64, 65, 133, 200}
)

func narrow[S dtype.Storage](v float64) S {
	var s [1]S
	dtype.Narrow(s[:], []float64{v})
	return s[0]
}

func widen[S dtype.Storage](s S) float64 {
	var v [1]float64
	dtype.Widen(v[:], []S{s})
	return v[0]
}

// guarded makes count rows of n small whole numbers, whose products sum without
// rounding in float32. Each lies offset numbers into memory of its own, between
// NaNs, which also spoil a sum that they get into.
func guarded[S dtype.Storage](rng *rand.Rand, count, n, offset int) (all, rows [][]S) {
	const guard = 24
	for range count {
		whole := make([]S, guard+offset+n+guard)
		for i := range whole {
			whole[i] = narrow[S](math.NaN())
		}
		row := whole[guard+offset:][:n:n]
		for i := range row {
			row[i] = narrow[S](float64(rng.IntN(9) - 4))
		}
		all, rows = append(all, whole), append(rows, row)
	}
	return all, rows
}

// snapshot is the values of rows, to compare with later.
func snapshot[S dtype.Storage](rows [][]S) [][]float64 {
	var c [][]float64
	for _, row := range rows {
		wide := make([]float64, len(row))
		dtype.Widen(wide, row)
		c = append(c, wide)
	}
	return c
}

// requireSame fails unless rows are want, NaN where it is.
func requireSame[S dtype.Storage](t *testing.T, want [][]float64, rows [][]S, name string) {
	t.Helper()
	for r, row := range snapshot(rows) {
		for i, got := range row {
			if got != want[r][i] && !(math.IsNaN(got) && math.IsNaN(want[r][i])) {
				t.Fatalf("%s: row %d [%d] is %v, want %v", name, r, i, got, want[r][i])
			}
		}
	}
}

func eachType(t *testing.T, f32, f64, bf16, f16 func(t *testing.T)) {
	tiertest.Each(t, func(t *testing.T) {
		t.Run("float32", f32)
		t.Run("float64", f64)
		t.Run("bfloat16", bf16)
		t.Run("float16", f16)
	})
}

func TestCombine(t *testing.T) {
	eachType(t, testCombine[float32, float32], testCombine[float64, float64],
		testCombine[dtype.BFloat16, float32], testCombine[dtype.Float16, float32])
}

func testCombine[S dtype.Storage, A dtype.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var b Blender[S, A]
	for _, outputs := range rowCounts {
		for _, inputs := range rowCounts {
			for k, n := range lengths {
				name := fmt.Sprintf("%d rows of %d rows of %d", outputs, inputs, n)
				srcAll, src := guarded[S](rng, inputs, n, k%5)
				dstAll, dst := guarded[S](rng, outputs, n, k%3)
				_, hs := guarded[A](rng, 1, outputs*inputs, 0)
				want, srcBefore, h := snapshot(dstAll), snapshot(srcAll), hs[0]
				for o := range outputs {
					for c := range n {
						s := 0.0
						for i := range inputs {
							s += float64(h[o*inputs+i]) * srcBefore[i][24+k%5+c]
						}
						want[o][24+k%3+c] = widen(narrow[S](s))
					}
				}
				b.Combine(dst, h, src)
				requireSame(t, want, dstAll, name)
				requireSame(t, srcBefore, srcAll, name+", input")
			}
		}
	}
}

func TestDots(t *testing.T) {
	eachType(t, testDots[float32, float32], testDots[float64, float64],
		testDots[dtype.BFloat16, float32], testDots[dtype.Float16, float32])
}

func testDots[S dtype.Storage, A dtype.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var b Blender[S, A]
	for _, outputs := range rowCounts {
		for _, inputs := range rowCounts {
			for k, n := range lengths {
				name := fmt.Sprintf("%d rows with %d rows of %d", outputs, inputs, n)
				gAll, g := guarded[S](rng, outputs, n, k%5)
				xAll, x := guarded[S](rng, inputs, n, k%3)
				dAll, d := guarded[A](rng, 1, outputs*inputs, k%2)
				want, gBefore, xBefore := snapshot(dAll), snapshot(gAll), snapshot(xAll)
				for o := range outputs {
					for i := range inputs {
						for c := range n {
							want[0][24+k%2+o*inputs+i] += gBefore[o][24+k%5+c] * xBefore[i][24+k%3+c]
						}
					}
				}
				b.Dots(d[0], g, x)
				requireSame(t, want, dAll, name)
				requireSame(t, gBefore, gAll, name+", left")
				requireSame(t, xBefore, xAll, name+", right")
			}
		}
	}
}

// Every tier is as near to exact sums as the type lets it.
func TestAccuracy(t *testing.T) {
	eachType(t,
		func(t *testing.T) { testAccuracy[float32, float32](t, 0x1p-24, 0x1p-24) },
		func(t *testing.T) { testAccuracy[float64, float64](t, 0x1p-53, 0x1p-53) },
		func(t *testing.T) { testAccuracy[dtype.BFloat16, float32](t, 0x1p-8, 0x1p-24) },
		func(t *testing.T) { testAccuracy[dtype.Float16, float32](t, 0x1p-11, 0x1p-24) })
}

// testAccuracy takes half the distance of two numbers next to 1 in the types.
func testAccuracy[S dtype.Storage, A dtype.Float](t *testing.T, stored, computed float64) {
	const m, n = 5, 301
	rng := rand.New(rand.NewPCG(5, 6))
	var b Blender[S, A]
	dst, src, h, d := make([][]S, m), make([][]S, m), make([]A, m*m), make([]A, m*m)
	for i := range m {
		dst[i], src[i] = make([]S, n), make([]S, n)
		for c := range n {
			src[i][c] = narrow[S](rng.NormFloat64())
		}
	}
	for i := range h {
		h[i] = A(rng.NormFloat64())
	}
	b.Combine(dst, h, src)
	b.Dots(d, dst, src)
	to, from := snapshot(dst), snapshot(src)
	for o := range m {
		for c := range n {
			want, size := 0.0, 0.0
			for i := range m {
				p := float64(h[o*m+i]) * from[i][c]
				want += p
				size += math.Abs(p)
			}
			require.InDelta(t, want, to[o][c], 1.01*stored*math.Abs(want)+2*m*computed*size, "combine [%d][%d]", o, c)
		}
		for i := range m {
			want, size := 0.0, 0.0
			for c := range n {
				p := to[o][c] * from[i][c]
				want += p
				size += math.Abs(p)
			}
			// A sum of four sums and more, of at most a quarter of the numbers each.
			require.InDelta(t, want, float64(d[o*m+i]), n/4*computed*size, "dots [%d][%d]", o, i)
		}
	}
}

// The bits do not depend on where the rows lie.
func TestBitsDoNotDependOnThePlace(t *testing.T) {
	eachType(t, testPlace[float32, float32], testPlace[float64, float64],
		testPlace[dtype.BFloat16, float32], testPlace[dtype.Float16, float32])
}

func testPlace[S dtype.Storage, A dtype.Float](t *testing.T) {
	const n = 77
	rng := rand.New(rand.NewPCG(7, 8))
	source := make([]S, n)
	for i := range source {
		source[i] = narrow[S](rng.NormFloat64())
	}
	var b Blender[S, A]
	var row []S
	var sums []A
	for offset := range 17 {
		x := make([]S, offset+n)[offset:]
		copy(x, source)
		dst, d := make([]S, offset+n)[offset:], make([]A, 9)
		b.Combine([][]S{dst}, []A{0.1, 0.2, 0.7}, [][]S{x, x, x})
		b.Dots(d, [][]S{x, x, x}, [][]S{x, x, x})
		if offset == 0 {
			row, sums = dst, d
		}
		require.Equal(t, row, dst, "offset %d", offset)
		require.Equal(t, sums, d, "offset %d", offset)
	}
}

// Writing past the caches changes nothing but the way; rows that are not aligned
// for it are written as usual.
func TestAroundTheCaches(t *testing.T) {
	eachType(t, testAround[float32, float32], testAround[float64, float64],
		testAround[dtype.BFloat16, float32], testAround[dtype.Float16, float32])
}

func testAround[S dtype.Storage, A dtype.Float](t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	around := Blender[S, A]{Around: true}
	var through Blender[S, A]
	for _, outputs := range rowCounts {
		for _, n := range append(lengths, 128, 256, 512) {
			for offset := range 2 {
				_, src := guarded[S](rng, 3, n, 0)
				_, hs := guarded[A](rng, 1, outputs*3, 0)
				all, dst := make([][]S, outputs), make([][]S, outputs)
				_, want := guarded[S](rng, outputs, n, 0)
				for o := range dst {
					all[o], dst[o] = alignedRow[S](n, offset)
				}
				require.Equal(t, offset == 0 || n == 0, aligned(dst) || n == 0)
				around.Combine(dst, hs[0], src)
				around.Fence()
				through.Combine(want, hs[0], src)
				for o := range dst {
					require.Equal(t, want[o], dst[o], "row %d of %d, length %d, offset %d", o, outputs, n, offset)
					for i, v := range all[o] {
						if &all[o][i] == unsafe.SliceData(dst[o]) {
							break
						}
						require.Zero(t, v, "before row %d", o)
					}
					require.Zero(t, all[o][len(all[o])-1], "after row %d", o)
				}
			}
		}
	}
}

// alignedRow is a row that begins offset elements after a cache line does, in a
// larger slice.
func alignedRow[S dtype.Storage](n, offset int) (all, row []S) {
	const line = 64
	all = make([]S, n+2*line+offset)
	at := 0
	for uintptr(unsafe.Pointer(&all[at]))%line != 0 {
		at++
	}
	return all, all[at+offset:][:n:n]
}

func TestNaNReachesTheResult(t *testing.T) {
	eachType(t, testNaN[float32, float32], testNaN[float64, float64],
		testNaN[dtype.BFloat16, float32], testNaN[dtype.Float16, float32])
}

func testNaN[S dtype.Storage, A dtype.Float](t *testing.T) {
	const n = 75
	var b Blender[S, A]
	for c := range n {
		src, dst, d := [][]S{make([]S, n), make([]S, n)}, [][]S{make([]S, n)}, make([]A, 2)
		src[1][c] = narrow[S](math.NaN())
		b.Combine(dst, []A{1, 0}, src)
		for i, v := range dst[0] {
			require.Equal(t, i == c, math.IsNaN(widen(v)), "a NaN at %d, the result at %d", c, i)
		}
		b.Dots(d, src[:1], src)
		require.Zero(t, d[0])
		require.True(t, d[1] != d[1])
	}
}

// 16-bit results are rounded as dtype rounds, also where they overflow.
func TestCombineRounds(t *testing.T) {
	eachType(t, testRounding[float32, float32], testRounding[float64, float64],
		testRounding[dtype.BFloat16, float32], testRounding[dtype.Float16, float32])
}

func testRounding[S dtype.Storage, A dtype.Float](t *testing.T) {
	src := make([]S, 1<<16)
	for i := range src {
		src[i] = narrow[S](float64(math.Float32frombits(uint32(i) << 16)))
	}
	var b Blender[S, A]
	for _, factor := range []A{1, 1 + 0x1p-8, 1 + 0x1p-9, 1.7, -3} {
		got, wide, want := make([]S, len(src)), make([]A, len(src)), make([]S, len(src))
		dtype.Widen(wide, src)
		for i := range wide {
			wide[i] = 0 + factor*wide[i]
		}
		dtype.Narrow(want, wide)
		b.Combine([][]S{got}, []A{factor}, [][]S{src})
		for i, v := range got {
			if v != want[i] && !math.IsNaN(widen(v)) || math.IsNaN(widen(v)) != math.IsNaN(widen(want[i])) {
				t.Fatalf("%v of %v is %v, want %v", factor, widen(src[i]), widen(v), widen(want[i]))
			}
		}
	}
}

func TestRowsOfDifferentLengths(t *testing.T) {
	var b Blender[float32, float32]
	x, y := make([]float32, 5), make([]float32, 6)
	require.PanicsWithValue(t, "blend: rows of 5 and of 6 numbers", func() { b.Combine([][]float32{y}, []float32{1}, [][]float32{x}) })
	require.PanicsWithValue(t, "blend: rows of 5 and of 6 numbers", func() { b.Dots(make([]float32, 2), [][]float32{x}, [][]float32{x, y}) })
	require.Panics(t, func() { b.Combine([][]float32{x}, nil, [][]float32{x}) })
	require.Panics(t, func() { b.Dots(nil, [][]float32{x}, [][]float32{x}) })
}

func TestKernelsDoNotAllocate(t *testing.T) {
	eachType(t, testAllocs[float32, float32], testAllocs[float64, float64],
		testAllocs[dtype.BFloat16, float32], testAllocs[dtype.Float16, float32])
}

func testAllocs[S dtype.Storage, A dtype.Float](t *testing.T) {
	var b Blender[S, A]
	x, y, d := [][]S{make([]S, 40)}, [][]S{make([]S, 40)}, make([]A, 1)
	require.Zero(t, testing.AllocsPerRun(10, func() {
		b.Combine(y, d, x)
		b.Dots(d, y, x)
	}))
}

// One stream read, four mixed, sixteen mixed; in the first level of the cache.
func BenchmarkBlend(b *testing.B) {
	tiertest.Each(b, func(b *testing.B) {
		b.Run("float32", benchmark[float32, float32])
		b.Run("float64", benchmark[float64, float64])
		b.Run("bfloat16", benchmark[dtype.BFloat16, float32])
		b.Run("float16", benchmark[dtype.Float16, float32])
	})
}

func benchmark[S dtype.Storage, A dtype.Float](b *testing.B) {
	const n = 256
	rows := func(count int) (r [][]S) {
		for range count {
			r = append(r, make([]S, n))
		}
		return r
	}
	var k Blender[S, A]
	for _, m := range [][2]int{{1, 4}, {4, 5}, {16, 17}} {
		dst, src, h := rows(m[0]), rows(m[1]), make([]A, m[0]*m[1])
		for _, c := range []struct {
			name string
			f    func()
		}{
			{"Combine", func() { k.Combine(dst, h, src) }},
			{"Dots", func() { k.Dots(h, dst, src) }},
		} {
			b.Run(fmt.Sprintf("%s/%dx%d", c.name, m[0], m[1]), func(b *testing.B) {
				for b.Loop() {
					c.f()
				}
				flops := 2 * float64(len(h)*n) * float64(b.N)
				b.ReportMetric(flops/float64(b.Elapsed().Nanoseconds()), "GFLOP/s")
			})
		}
	}
}
