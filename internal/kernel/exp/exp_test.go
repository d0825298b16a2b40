package exp_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/kernel/exp"
	"github.com/mhc-go/mhc/internal/kernel/guard"
	"github.com/mhc-go/mhc/internal/tier/tiertest"
)

type function struct {
	name string
	ulps float64
	of   func(x float64) float64
	// float32 and float64 are the kernels of the active tier.
	float32 func(*exp.Kernels[float32]) func(dst, src []float32)
	float64 func(*exp.Kernels[float64]) func(dst, src []float64)
}

var functions = []function{
	{
		"exp", 2, math.Exp,
		func(k *exp.Kernels[float32]) func(dst, src []float32) { return k.Exp },
		func(k *exp.Kernels[float64]) func(dst, src []float64) { return k.Exp },
	},
	{
		"sigmoid", 2, func(x float64) float64 { return 1 / (1 + math.Exp(-x)) },
		func(k *exp.Kernels[float32]) func(dst, src []float32) { return k.Sigmoid },
		func(k *exp.Kernels[float64]) func(dst, src []float64) { return k.Sigmoid },
	},
	{
		"slope", 4, func(x float64) float64 { return 1 / (2 + 2*math.Cosh(x)) },
		func(k *exp.Kernels[float32]) func(dst, src []float32) { return k.Slope },
		func(k *exp.Kernels[float64]) func(dst, src []float64) { return k.Slope },
	},
}

// units is |got - want| in units in the last place of a float32 want.
func units(got float32, want float64) float64 {
	rounded := float32(want)
	if got == rounded || got != got && want != want {
		return 0
	}
	size := float32(math.Abs(float64(rounded)))
	ulp := float64(math.Nextafter32(size, float32(math.Inf(1)))) - float64(size)
	return math.Abs(float64(got)-want) / ulp
}

// arguments is every 3001st float32, all those near the ends of the range, and
// the special ones.
func arguments() []float32 {
	var x []float32
	for bits := uint64(0); bits < 1<<32; bits += 3001 {
		x = append(x, math.Float32frombits(uint32(bits)))
	}
	for _, end := range []float32{0, 88.7228, -87.3365, -103.279, -103.972, -104, 89} {
		for v, i := end-0.0005, 0; i < 400; i++ {
			x = append(x, v)
			v = math.Nextafter32(v, 1000)
		}
	}
	x = append(x, 0, float32(math.Copysign(0, -1)), float32(math.Inf(1)), float32(math.Inf(-1)), float32(math.NaN()), 1e4, -1e4, math.MaxFloat32, -math.MaxFloat32)
	for len(x)%16 != 0 {
		x = append(x, 1)
	}
	return x
}

func TestAccuracy(t *testing.T) {
	x := arguments()
	got := make([]float32, len(x))
	for _, f := range functions {
		want := make([]float64, len(x))
		for i, v := range x {
			want[i] = f.of(float64(v))
		}
		t.Run(f.name, func(t *testing.T) {
			tiertest.Each(t, func(t *testing.T) {
				f.float32(exp.For[float32]())(got, x)
				worst, at := 0.0, 0
				for i, w := range want {
					u := units(got[i], w)
					if !(u <= worst) {
						worst, at = u, i
					}
				}
				t.Logf("%.2f units in the last place at %v", worst, x[at])
				require.Less(t, worst, f.ulps, "%v gives %v, want %v", x[at], got[at], want[at])
			})
		})
	}
}

func TestEnds(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) { testEnds[float32](t); testEnds[float64](t) })
}

func testEnds[T dtype.Float](t *testing.T) {
	k, inf, nan := exp.For[T](), T(math.Inf(1)), T(math.NaN())
	x := []T{0, T(math.Copysign(0, -1)), inf, -inf, nan, 1e4, -1e4, 1e30, -1e30, 800, -800, 0, 0, 0, 0, 0}
	for _, c := range []struct {
		name string
		f    func(dst, src []T)
		want []T
	}{
		{"exp", k.Exp, []T{1, 1, inf, 0, nan, inf, 0, inf, 0, inf, 0}},
		{"sigmoid", k.Sigmoid, []T{0.5, 0.5, 1, 0, nan, 1, 0, 1, 0, 1, 0}},
		{"slope", k.Slope, []T{0.25, 0.25, 0, 0, nan, 0, 0, 0, 0, 0, 0}},
	} {
		got := make([]T, len(x))
		c.f(got, x)
		for i, want := range c.want {
			switch {
			case want != want:
				assert.True(t, got[i] != got[i], "%s of %v is %v", c.name, x[i], got[i])
			case want == 0: // or nearly so, in float64
				assert.Less(t, got[i], T(1e-38), "%s of %v", c.name, x[i])
			default:
				assert.Equal(t, want, got[i], "%s of %v", c.name, x[i])
			}
		}
	}
}

// precise is exp(x) to some 120 bits, for |x| < 600.
func precise(x float64) *big.Float {
	const bits = 140
	number := func(v float64) *big.Float { return new(big.Float).SetPrec(bits).SetFloat64(v) }
	ln2, _, err := big.ParseFloat("0.693147180559945309417232121458176568075500134360255254120680009493393621969694715605863326996418687", 10, bits, big.ToNearestEven)
	if err != nil {
		panic(err)
	}
	k := math.Round(x / math.Ln2)
	r := number(x)
	r.Sub(r, number(0).Mul(number(k), ln2))
	sum, term := number(1), number(1)
	for i := 1.0; i < 40; i++ {
		term.Quo(term.Mul(term, r), number(i))
		sum.Add(sum, term)
	}
	return sum.SetMantExp(sum, int(k))
}

// units64 is |got - want| in units in the last place of want as a float64.
func units64(got float64, want *big.Float) float64 {
	rounded, _ := want.Float64()
	ulp := math.Nextafter(rounded, math.Inf(1)) - rounded
	diff, _ := new(big.Float).Sub(new(big.Float).SetFloat64(got), want).Float64()
	return math.Abs(diff) / ulp
}

func TestAccuracyOfFloat64(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	x := make([]float64, 4096)
	for i := range x {
		x[i] = 1200 * (rng.Float64() - 0.5) * math.Pow(2, -float64(i%13))
	}
	one := big.NewFloat(1)
	sigmoid := func(x float64) *big.Float {
		e := precise(-x)
		return e.Quo(one, e.Add(e, one))
	}
	slope := func(x float64) *big.Float {
		e := precise(-math.Abs(x))
		d := new(big.Float).Add(e, one)
		return e.Quo(e, d.Mul(d, d))
	}
	for i, want := range []func(x float64) *big.Float{precise, sigmoid, slope} {
		f := functions[i]
		t.Run(f.name, func(t *testing.T) {
			tiertest.Each(t, func(t *testing.T) {
				got := make([]float64, len(x))
				f.float64(exp.For[float64]())(got, x)
				worst := 0.0
				for i, v := range x {
					worst = max(worst, units64(got[i], want(v)))
				}
				t.Logf("%.2f units in the last place", worst)
				require.Less(t, worst, f.ulps)
			})
		})
	}
}

func TestGuards(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) {
		for _, f := range functions {
			kernel := f.float32(exp.For[float32]())
			for entries := range 4 {
				x := make([]float32, 16*entries)
				for i := range x {
					x[i] = float32(i-20) / 3
				}
				want := make([]float32, len(x))
				kernel(want, x)
				for offset := range 16 {
					src, dst := guard.Place(x, offset), guard.Place(x, 15-offset)
					kernel(dst.Data, src.Data)
					require.Equal(t, want, dst.Data)
					dst.RequireIntact(t)
					src.RequireUnchanged(t)
					kernel(src.Data, src.Data)
					require.Equal(t, want, src.Data, "in place")
					src.RequireIntact(t)
				}
			}
		}
	})
}
