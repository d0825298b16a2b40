package lanes_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/kernel/guard"
	"github.com/mhc-go/mhc/internal/kernel/lanes"
	"github.com/mhc-go/mhc/internal/tier/tiertest"
)

const width = lanes.Width

var rng = rand.New(rand.NewPCG(1, 1))

// whole is random whole numbers, with which small sums and products are exact.
func whole[T dtype.Float](count int) []T {
	a := make([]T, count)
	for i := range a {
		a[i] = T(rng.IntN(2000) - 1000)
	}
	return a
}

// each runs both types of a test once a tier.
func each(t *testing.T, single, double func(*testing.T)) {
	tiertest.Each(t, func(t *testing.T) {
		t.Run("float32", single)
		t.Run("float64", double)
	})
}

func TestPackAndUnpack(t *testing.T) { each(t, testPackAndUnpack[float32], testPackAndUnpack[float64]) }

func testPackAndUnpack[T dtype.Float](t *testing.T) {
	k := lanes.For[T]()
	for _, rows := range []int{1, 7, 15, 16} {
		for _, cols := range []int{1, 2, 3, 4, 5, 8, 24, 35} {
			for _, stride := range []int{cols, cols + 3} {
				for offset := range 5 {
					name := fmt.Sprintf("%d rows of %d, %d apart, offset %d", rows, cols, stride, offset)
					row := guard.Place(whole[T]((rows-1)*stride+cols), offset)
					block := guard.Place(whole[T](cols*width), 4-offset)
					k.Pack(block.Data, row.Data, rows, stride)
					for l := range width {
						for j := range cols {
							want := T(0)
							if l < rows {
								want = row.Data[l*stride+j]
							}
							require.Equal(t, want, block.Data[j*width+l], name)
						}
					}
					row.RequireUnchanged(t)
					block.RequireIntact(t)

					before := append([]T(nil), block.Data...)
					back := guard.Place(whole[T](len(row.Data)), offset)
					between := append([]T(nil), back.Data...)
					k.Unpack(back.Data, block.Data, rows, stride)
					for i, v := range back.Data {
						want := between[i]
						if i%stride < cols {
							want = row.Data[i]
						}
						require.Equal(t, want, v, name)
					}
					back.RequireIntact(t)
					require.Equal(t, before, block.Data, name)
				}
			}
		}
	}
}

func TestMul(t *testing.T) { each(t, testMul[float32], testMul[float64]) }

func testMul[T dtype.Float](t *testing.T) {
	for entries := range 6 {
		a, b := whole[T](entries*width), whole[T](entries*width)
		dst, src := guard.Place(a, entries), guard.Place(b, 1)
		lanes.For[T]().Mul(dst.Data, src.Data)
		for i := range a {
			require.Equal(t, a[i]*b[i], dst.Data[i])
		}
		dst.RequireIntact(t)
		src.RequireUnchanged(t)
	}
}

func TestAffine(t *testing.T) { each(t, testAffine[float32], testAffine[float64]) }

func testAffine[T dtype.Float](t *testing.T) {
	k := lanes.For[T]()
	for entries := range 6 {
		a, scale, shift := whole[T](entries*width), guard.Place(whole[T](entries), 1), guard.Place(whole[T](entries), 2)
		dst, src := guard.Place(make([]T, len(a)), 3), guard.Place(a, entries)
		k.Affine(dst.Data, src.Data, scale.Data, shift.Data)
		for i := range a {
			require.Equal(t, scale.Data[i/width]*a[i]+shift.Data[i/width], dst.Data[i])
		}
		dst.RequireIntact(t)
		for _, m := range []*guard.Memory[T]{src, scale, shift} {
			m.RequireUnchanged(t)
		}
		k.Affine(src.Data, src.Data, scale.Data, shift.Data)
		require.Equal(t, dst.Data, src.Data, "in place")
	}
}

func TestAccumulate(t *testing.T) { each(t, testAccumulate[float32], testAccumulate[float64]) }

func testAccumulate[T dtype.Float](t *testing.T) {
	for entries := range 6 {
		n := entries * width
		sums, dots := whole[float64](n), whole[float64](n)
		g, x := guard.Place(whole[T](n), entries), guard.Place(whole[T](n), 1)
		sum, dot := guard.Place(sums, 2), guard.Place(dots, 3)
		lanes.For[T]().Accumulate(sum.Data, dot.Data, g.Data, x.Data)
		for i := range n {
			require.Equal(t, sums[i]+float64(g.Data[i]), sum.Data[i])
			require.Equal(t, dots[i]+float64(g.Data[i])*float64(x.Data[i]), dot.Data[i])
		}
		sum.RequireIntact(t)
		dot.RequireIntact(t)
		g.RequireUnchanged(t)
		x.RequireUnchanged(t)
	}
}

// What float32 cannot hold is held in float64.
func TestAccumulateInFloat64(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) {
		sum, dot := make([]float64, width), make([]float64, width)
		g, x := make([]float32, width), make([]float32, width)
		for i, v := range []float32{1 << 24, 1, 1, -(1 << 24)} {
			for l := range g {
				g[l], x[l] = v, v+float32(i)
			}
			lanes.For[float32]().Accumulate(sum, dot, g, x)
		}
		const big = 1 << 24
		for l := range width {
			require.Equal(t, 2.0, sum[l])
			require.Equal(t, float64(big*big+2+3+big*(big-3)), dot[l])
		}
	})
}
