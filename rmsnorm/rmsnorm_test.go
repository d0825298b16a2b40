package rmsnorm

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/tier/tiertest"
)

// Bounds on ||got - want|| / ||want||.
var (
	bounds32 = bounds{mix: 2e-6, r: 2e-6, dx: 1e-5, dphi: 1e-5}
	bounds64 = bounds{mix: 1e-12, r: 1e-12, dx: 1e-12, dphi: 1e-12}
)

type bounds struct{ mix, r, dx, dphi float64 }

// call is one forward and backward run: its inputs, and its results in memory
// that shows a write past them.
type call[S, P dtype.Storage, A dtype.Float] struct {
	d          Dims
	eps        float64
	x          fenced[S]
	phi        fenced[P]
	dmix       fenced[A]
	mix, r     fenced[A]
	dx         fenced[S]
	dphi       fenced[P]
	wMix, wR   []float64
	wDx, wDphi []float64
}

// fenced is a slice inside a longer one.
type fenced[S dtype.Storage] struct {
	all, s []S
	before []S // all, as it was
}

const fence = 67

// newFenced puts values between fences of NaN.
func newFenced[S dtype.Storage](values []float64, shift int) fenced[S] {
	all := make([]S, len(values)+2*fence)
	nan := slices.Repeat([]float64{math.NaN()}, fence)
	dtype.Narrow(all, slices.Concat(nan, values, nan))
	all = append(make([]S, shift), all...)
	lo := shift + fence
	return fenced[S]{all: all, s: all[lo : lo+len(values) : lo+len(values)], before: slices.Clone(all)}
}

func bitsOf[S dtype.Storage](s []S) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(S))))
}

// fencesHold requires that nothing outside of the slice has changed, or nothing
// at all if the slice is an input.
func (f fenced[S]) fencesHold(t *testing.T, name string, input bool) {
	t.Helper()
	if !input {
		lo := len(f.all) - fence - len(f.s)
		copy(f.before[lo:], f.s)
	}
	require.True(t, bytes.Equal(bitsOf(f.before), bitsOf(f.all)), "%s: written outside of what is the result", name)
}

func normal(rng *rand.Rand, n int, scale float64) []float64 {
	s := make([]float64, n)
	for i := range s {
		s[i] = scale * rng.NormFloat64()
	}
	return s
}

func nans(n int) []float64 { return slices.Repeat([]float64{math.NaN()}, n) }

func newCall[S, P dtype.Storage, A dtype.Float](d Dims, eps float64, seed uint64) *call[S, P, A] {
	rng := rand.New(rand.NewPCG(seed, 1))
	c := &call[S, P, A]{
		d: d, eps: eps,
		x:    newFenced[S](normal(rng, d.Tokens*d.K, 1), 1),
		phi:  newFenced[P](normal(rng, d.K*d.M, 0.1), 0),
		dmix: newFenced[A](normal(rng, d.Tokens*d.M, 1), 3),
		mix:  newFenced[A](nans(d.Tokens*d.M), 1),
		r:    newFenced[A](nans(d.Tokens), 2),
		dx:   newFenced[S](nans(d.Tokens*d.K), 3),
		dphi: newFenced[P](nans(d.K*d.M), 1),
	}
	c.wMix, c.wR = referenceForward(c.x.s, c.phi.s, d, eps)
	c.wDx, c.wDphi = referenceBackward(c.x.s, c.phi.s, c.wMix, c.wR, widened(c.dmix.s), d)
	return c
}

func (c *call[S, P, A]) run(t *testing.T) {
	t.Helper()
	require.NoError(t, Forward(c.mix.s, c.r.s, c.x.s, c.phi.s, c.d, c.eps))
	require.NoError(t, Backward(c.dx.s, c.dphi.s, c.x.s, c.phi.s, c.mix.s, c.r.s, c.dmix.s, c.d))
	c.x.fencesHold(t, "x", true)
	c.phi.fencesHold(t, "phi", true)
	c.dmix.fencesHold(t, "dmix", true)
	c.mix.fencesHold(t, "mix", false)
	c.r.fencesHold(t, "r", false)
	c.dx.fencesHold(t, "dx", false)
	c.dphi.fencesHold(t, "dphi", false)
}

func (c *call[S, P, A]) check(t *testing.T) {
	t.Helper()
	b := bounds32
	if same[A, float64]() {
		b = bounds64
	}
	near(t, "mix", c.mix.s, c.wMix, b.mix)
	near(t, "r", c.r.s, c.wR, b.r)
	near(t, "dx", c.dx.s, c.wDx, b.dx)
	near(t, "dphi", c.dphi.s, c.wDphi, b.dphi)
}

// near requires got to be as near to want as the bound says, beside what the
// rounding of want to got's type costs by itself.
func near[S dtype.Storage](t *testing.T, name string, got []S, want []float64, bound float64) {
	t.Helper()
	rounded := make([]S, len(want))
	dtype.Narrow(rounded, want)
	if !same[S, float64]() && !same[S, float32]() {
		bound += 1.001 * distance(rounded, want)
	}
	assert.LessOrEqual(t, distance(got, want), bound, name)
}

// distance is ||got - want|| / ||want||, and 0 for equal empty or zero vectors.
func distance[S dtype.Storage](got []S, want []float64) float64 {
	var diff, norm float64
	for i, v := range widened(got) {
		diff += (v - want[i]) * (v - want[i])
		norm += want[i] * want[i]
	}
	if diff == 0 {
		return 0
	}
	return math.Sqrt(diff / norm)
}

// runner makes a test of the given sizes for one combination of types.
type runner struct {
	name string
	run  func(t *testing.T, d Dims)
}

func runnerFor[S, P dtype.Storage, A dtype.Float](name string) runner {
	return runner{name, func(t *testing.T, d Dims) {
		eps := 1e-6
		if d.K == 1 {
			eps = 1 // near 0 the two terms of dx cancel
		}
		c := newCall[S, P, A](d, eps, uint64(d.Tokens*1000+d.K))
		tiertest.Each(t, func(t *testing.T) {
			c.run(t)
			c.check(t)
		})
	}}
}

var runners = []runner{
	runnerFor[float32, float32, float32]("float32"),
	runnerFor[float64, float64, float64]("float64"),
	runnerFor[dtype.BFloat16, dtype.BFloat16, float32]("bfloat16"),
	runnerFor[dtype.BFloat16, float32, float32]("bfloat16 with float32 phi"),
	runnerFor[dtype.Float16, dtype.Float16, float32]("float16"),
	runnerFor[dtype.Float16, float32, float32]("float16 with float32 phi"),
}

// Every size; the types and layouts take turns.
func TestSizes(t *testing.T) {
	i := 0
	for _, n := range []int{0, 1, 2, 7, 33, 257} {
		for _, k := range []int{1, 7, 32, 33, 1000} {
			for _, m := range []int{1, 3, 8, 24, 80, 288} {
				r := runners[i%len(runners)]
				d := Dims{Tokens: n, K: k, M: m, Transposed: i/len(runners)%2 == 1}
				t.Run(fmt.Sprintf("%s %+v", r.name, d), func(t *testing.T) { r.run(t, d) })
				i++
			}
			i++ // so that an m does not always meet the same type
		}
	}
}

// Every combination of types and layouts; some sizes.
func TestTypes(t *testing.T) {
	for _, r := range runners {
		for _, d := range []Dims{{3, 5, 3, false}, {50, 600, 15, false}, {7, 64, 24, false}, {400, 33, 8, false}} {
			for _, d.Transposed = range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %+v", r.name, d), func(t *testing.T) { r.run(t, d) })
			}
		}
	}
}
