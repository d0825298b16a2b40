package normalize

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/kernel/guard"
	"github.com/mhc-go/mhc/internal/tier"
	"github.com/mhc-go/mhc/internal/tier/tiertest"
)

var rng = rand.New(rand.NewPCG(1, 1))

// each runs both types of a test once a tier.
func each(t *testing.T, single, double func(*testing.T)) {
	tiertest.Each(t, func(t *testing.T) {
		t.Run("float32", single)
		t.Run("float64", double)
	})
}

// uniform is random numbers of [lo, hi).
func uniform[T dtype.Float](count int, lo, hi float64) []T {
	a := make([]T, count)
	for i := range a {
		a[i] = T(lo + (hi-lo)*rng.Float64())
	}
	return a
}

// eachShape calls f for sizes and both directions of lines, with an offset of
// memory that differs.
func eachShape(f func(name string, n, line, along, offset int)) {
	for offset, n := range []int{1, 2, 3, 4, 5, 8, 16, 17} {
		f(fmt.Sprintf("columns of %d", n), n, 1, n, offset)
		f(fmt.Sprintf("rows of %d", n), n, n, 1, 15-offset)
	}
}

// requireClose compares with float64 results, to a few roundings of T.
func requireClose[T dtype.Float](t *testing.T, want []float64, got []T, name string) {
	t.Helper()
	bound := 1e-6
	if T(1)+1e-10 != 1 {
		bound = 1e-14
	}
	require.Equal(t, len(want), len(got))
	for i, w := range want {
		require.InDelta(t, w, float64(got[i]), bound*max(1, math.Abs(w)), "%s, entry %d of lane %d", name, i/width, i%width)
	}
}

func widened[T dtype.Float](a []T) []float64 {
	w := make([]float64, len(a))
	dtype.Widen(w, a)
	return w
}

func TestShift(t *testing.T) { each(t, testShift[float32], testShift[float64]) }

func testShift[T dtype.Float](t *testing.T) {
	eachShape(func(name string, n, line, along, offset int) {
		a, p := guard.Place(uniform[T](n*n*width, -9, 9), offset), guard.Place(make([]T, n*n*width), 1)
		active[T]().shift(p.Data, a.Data, n, line, along)
		for i := range n {
			for l := range width {
				top := a.Data[i*line*width+l]
				for j := range n {
					top = max(top, a.Data[(i*line+j*along)*width+l])
				}
				for j := range n {
					k := (i*line+j*along)*width + l
					require.Equal(t, a.Data[k]-top, p.Data[k], name)
				}
			}
		}
		a.RequireUnchanged(t)
		p.RequireIntact(t)
	})
}

func TestFloor(t *testing.T) { each(t, testFloor[float32], testFloor[float64]) }

func testFloor[T dtype.Float](t *testing.T) {
	for _, entries := range []int{0, 1, 2, 9, 16} {
		for lane := range width {
			for _, c := range []struct {
				value T
				low   bool
			}{{0.25, false}, {0.125, true}, {0, true}, {-1, true}, {T(math.NaN()), true}, {T(math.Inf(1)), false}} {
				p := guard.Place(uniform[T](entries*width, 1, 2), lane)
				want := uint16(0)
				if entries > 0 {
					p.Data[rng.IntN(entries)*width+lane] = c.value
					if c.low {
						want = 1 << lane
					}
				}
				before := append([]T(nil), p.Data...)
				require.Equal(t, want, active[T]().floor(p.Data, 0.25, 0.5), "%v in lane %d", c.value, lane)
				for i, v := range before {
					assert.True(t, v+0.25 == p.Data[i] || v != v && p.Data[i] != p.Data[i])
				}
				p.RequireIntact(t)
			}
		}
	}
}

func TestStep(t *testing.T) { each(t, testStep[float32], testStep[float64]) }

func testStep[T dtype.Float](t *testing.T) {
	eachShape(func(name string, n, line, along, offset int) {
		p, sums := guard.Place(uniform[T](n*n*width, 0, 1), offset), guard.Place(make([]T, n*width), 1)
		wantP, wantSums := widened(p.Data), widened(sums.Data)
		step64(wantP, wantSums, n, line, along, 0.125)
		active[T]().step(p.Data, sums.Data, n, line, along, 0.125)
		requireClose(t, wantP, p.Data, name)
		requireClose(t, wantSums, sums.Data, name)
		p.RequireIntact(t)
		sums.RequireIntact(t)
	})
}

// step64 is step by its definition.
func step64(p, sums []float64, n, line, along int, eps float64) {
	for l := range width {
		for i := range n {
			sum := eps
			for j := range n {
				sum += p[(i*line+j*along)*width+l]
			}
			sums[i*width+l] = sum
			for j := range n {
				p[(i*line+j*along)*width+l] /= sum
			}
		}
	}
}

func TestReverse(t *testing.T) { each(t, testReverse[float32], testReverse[float64]) }

func testReverse[T dtype.Float](t *testing.T) {
	eachShape(func(name string, n, line, along, offset int) {
		g, y := guard.Place(uniform[T](n*n*width, -1, 1), offset), guard.Place(uniform[T](n*n*width, 0, 1), 1)
		sums := guard.Place(uniform[T](n*width, 0.5, 2), 2)
		wantG, wantY := widened(g.Data), widened(y.Data)
		reverse64(wantG, wantY, widened(sums.Data), n, line, along)
		active[T]().reverse(g.Data, y.Data, sums.Data, n, line, along)
		requireClose(t, wantG, g.Data, name)
		requireClose(t, wantY, y.Data, name)
		g.RequireIntact(t)
		y.RequireIntact(t)
		sums.RequireUnchanged(t)
	})
}

// reverse64 is reverse by its definition.
func reverse64(g, y, sums []float64, n, line, along int) {
	for l := range width {
		for i := range n {
			sum := 0.0
			for j := range n {
				sum += g[(i*line+j*along)*width+l]
			}
			for j := range n {
				k := (i*line+j*along)*width + l
				g[k] -= y[k] * sum
				y[k] *= sums[i*width+l]
			}
		}
	}
}

func TestRatio(t *testing.T) { each(t, testRatio[float32], testRatio[float64]) }

func testRatio[T dtype.Float](t *testing.T) {
	for entries := range 5 {
		g, soft := guard.Place(uniform[T](entries*width, -1, 1), entries), guard.Place(uniform[T](entries*width, 0, 1), 1)
		want := widened(g.Data)
		for i := range want {
			want[i] *= float64(soft.Data[i]) / (float64(soft.Data[i]) + 0.125)
		}
		active[T]().ratio(g.Data, soft.Data, 0.125)
		requireClose(t, want, g.Data, "ratio")
		g.RequireIntact(t)
		soft.RequireUnchanged(t)
	}
}

func TestBalance(t *testing.T) { each(t, testBalance[float32], testBalance[float64]) }

func testBalance[T dtype.Float](t *testing.T) {
	eachShape(func(name string, n, line, along, offset int) {
		a := uniform[T](n*n*width, -2, 2)
		for i := range a {
			a[i] = T(math.Round(float64(a[i]))) // so that some are equal
		}
		g, from := guard.Place(uniform[T](n*n*width, -1, 1), offset), guard.Place(a, 1)
		want := widened(g.Data)
		for l := range width {
			for i := range n {
				top, rest := 0, 0.0
				for j := range n {
					if a[(i*line+j*along)*width+l] > a[(i*line+top*along)*width+l] {
						top = j
					}
				}
				for j := range n {
					if j != top {
						rest += want[(i*line+j*along)*width+l]
					}
				}
				want[(i*line+top*along)*width+l] = -rest
			}
		}
		active[T]().balance(g.Data, from.Data, n, line, along)
		requireClose(t, want, g.Data, name)
		g.RequireIntact(t)
		from.RequireUnchanged(t)
	})
}

// The kernels that hold a matrix in registers do what their single steps do.
func TestStepsInRegisters(t *testing.T) {
	best := tier.Available()
	if best < tier.AVX512 {
		t.Skip("this CPU, or build, has no AVX-512")
	}
	testStepsInRegisters(t, &singles[best])
	testStepsInRegisters(t, &doubles[best])
}

func testStepsInRegisters[T dtype.Float](t *testing.T, k *kernels[T]) {
	const n = 4
	for steps := 1; steps <= 8; steps++ {
		p, sums := guard.Place(uniform[T](n*n*width, 0, 1), steps), guard.Place(make([]T, steps*n*width), 1)
		last := guard.Place(make([]T, n*width), 2)
		twin := guard.Place(p.Data, 3)
		wantP, wantSums := widened(p.Data), make([]float64, steps*n*width)
		for s := range steps {
			line, along := Projection{N: n}.lines(s)
			step64(wantP, wantSums[s*n*width:], n, line, along, 0.125)
		}
		k.steps4(p.Data, sums.Data, steps, n*width, 0.125)
		k.steps4(twin.Data, last.Data, steps, 0, 0.125)
		requireClose(t, wantP, p.Data, "steps4")
		requireClose(t, wantSums, sums.Data, "steps4's sums")
		require.Equal(t, p.Data, twin.Data)
		require.Equal(t, sums.Data[(steps-1)*n*width:], last.Data)
		for _, m := range []*guard.Memory[T]{p, sums, twin, last} {
			m.RequireIntact(t)
		}

		g := guard.Place(uniform[T](n*n*width, -1, 1), steps)
		kept := guard.Place(sums.Data, 5)
		wantG, wantY := widened(g.Data), widened(p.Data)
		for s := steps - 1; s >= 0; s-- {
			line, along := Projection{N: n}.lines(s)
			reverse64(wantG, wantY, wantSums[s*n*width:], n, line, along)
		}
		k.reverse4(g.Data, p.Data, kept.Data, steps)
		requireClose(t, wantG, g.Data, "reverse4")
		requireClose(t, wantY, p.Data, "reverse4's start")
		g.RequireIntact(t)
		p.RequireIntact(t)
		kept.RequireUnchanged(t)
	}
}

// Every tier has every kernel; those in registers are AVX-512's own.
func TestNoKernelMissing(t *testing.T) {
	for level := tier.Go; level <= tier.Available(); level++ {
		for _, k := range []reflect.Value{reflect.ValueOf(singles[level]), reflect.ValueOf(doubles[level])} {
			for i := range k.NumField() {
				if name := k.Type().Field(i).Name; name != "steps4" && name != "reverse4" || level == tier.AVX512 {
					assert.False(t, k.Field(i).IsNil(), "%v lacks %s", level, name)
				}
			}
		}
	}
}
