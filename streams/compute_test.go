package streams

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/floats"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/dtype"
)

// random makes operands whose numbers are exact in types S, P and A.
func random[S, P dtype.Storage, A dtype.Float](d Dims, seed uint64) numbers {
	rng := rand.New(rand.NewPCG(seed, 0))
	N, n, C := d.Tokens, d.Streams, d.Channels
	return numbers{
		x: normal[S](rng, N*n*C, 1), g: normal[S](rng, N*n*C, 1),
		f: normal[S](rng, N*C, 1), up: normal[S](rng, N*C, 1),
		hpre: normal[A](rng, N*n, 1), hpost: normal[A](rng, N*n, 1), hres: normal[A](rng, N*n*n, 1),
		phi: normal[P](rng, n*C*n, 1/math.Sqrt(float64(n*C))), b: normal[A](rng, n, 1), alpha: normal[A](rng, 1, 1),
	}
}

// normal makes normal numbers, rounded to type T.
func normal[T dtype.Storage](rng *rand.Rand, n int, scale float64) []float64 {
	v := make([]float64, n)
	for i := range v {
		v[i] = scale * rng.NormFloat64()
	}
	return widen(narrow[T](v))
}

func narrow[T dtype.Storage](v []float64) []T {
	s := make([]T, len(v))
	dtype.Narrow(s, v)
	return s
}

func widen[T dtype.Storage](s []T) []float64 {
	v := make([]float64, len(s))
	dtype.Widen(v, s)
	return v
}

// guard is the number of elements on each side of a test's slice.
const guard = 19

// memory hands out slices with elements around them that must stay as they are,
// and never at the start of an allocation, so that few are aligned.
type memory struct {
	t      *testing.T
	checks []func()
}

// place puts numbers between NaNs. The check is that nothing has changed.
func place[T dtype.Storage](m *memory, name string, v []float64) []T {
	nan := narrow[T]([]float64{math.NaN()})[0]
	whole := make([]T, guard+len(v)+guard)
	for i := range whole {
		whole[i] = nan
	}
	s := whole[guard:][:len(v):len(v)]
	dtype.Narrow(s, v)
	m.checks = append(m.checks, func() {
		for i, got := range widen(whole) {
			want := math.NaN()
			if i >= guard && i < guard+len(v) {
				want = v[i-guard]
			}
			if got != want && !(math.IsNaN(got) && math.IsNaN(want)) {
				m.t.Fatalf("%s [%d] was overwritten with %v", name, i-guard, got)
			}
		}
	})
	return s
}

// room is n elements of NaN between sevens, which must stay.
func room[T dtype.Storage](m *memory, name string, n int) []T {
	v := make([]float64, guard+n+guard)
	for i := range v {
		v[i] = 7
		if i >= guard && i < guard+n {
			v[i] = math.NaN()
		}
	}
	whole := narrow[T](v)
	m.checks = append(m.checks, func() {
		for i, got := range widen(whole) {
			if (i < guard || i >= guard+n) && got != 7 {
				m.t.Fatalf("%s [%d] was overwritten with %v", name, i-guard, got)
			}
		}
	})
	return whole[guard:][:n:n]
}

// compute runs every function of the package in the given types, and returns
// every result by a name. It requires that no function changes an operand, or an
// element beside a result.
func compute[S, P dtype.Storage, A dtype.Float](t *testing.T, in numbers, d Dims, apply mhc.Apply, cfg mhc.HeadConfig) map[string][]float64 {
	t.Helper()
	m := &memory{t: t}
	big, one, n := d.Tokens*d.Streams*d.Channels, d.Tokens*d.Channels, d.Streams
	x, g := place[S](m, "x", in.x), place[S](m, "g", in.g)
	f, up := place[S](m, "f", in.f), place[S](m, "up", in.up)
	hpre, hpost, hres := place[A](m, "hpre", in.hpre), place[A](m, "hpost", in.hpost), place[A](m, "hres", in.hres)
	head := HeadInputs[S, P, A]{X: x, Phi: place[P](m, "phi", in.phi), B: place[A](m, "b", in.b), Alpha: place[A](m, "alpha", in.alpha)}
	r := map[string][]float64{}

	out, dx := room[S](m, "expand", big), room[S](m, "expand.dx", one)
	require.NoError(t, Expand(out, f, d))
	require.NoError(t, ExpandBackward(dx, g, d))
	r["expand"], r["expand.dx"] = widen(out), widen(dx)

	xin, dx, dhpre := room[S](m, "pre", one), room[S](m, "pre.dx", big), room[A](m, "pre.dhpre", d.Tokens*n)
	require.NoError(t, Pre(xin, x, hpre, d))
	require.NoError(t, PreBackward(dx, dhpre, x, hpre, up, d))
	r["pre"], r["pre.dx"], r["pre.dhpre"] = widen(xin), widen(dx), widen(dhpre)

	xout := room[S](m, "postres", big)
	grad := PostResGradients[S, A]{
		X: room[S](m, "postres.dx", big), F: room[S](m, "postres.df", one),
		HPost: room[A](m, "postres.dhpost", d.Tokens*n), HRes: room[A](m, "postres.dhres", d.Tokens*n*n),
	}
	require.NoError(t, PostRes(xout, x, f, hpost, hres, d, apply))
	require.NoError(t, PostResBackward(grad, x, f, hpost, hres, g, d, apply))
	r["postres"], r["postres.dx"], r["postres.df"] = widen(xout), widen(grad.X), widen(grad.F)
	r["postres.dhpost"], r["postres.dhres"] = widen(grad.HPost), widen(grad.HRes)

	y := room[S](m, "head", one)
	kept := HeadKept[A]{Mix: room[A](m, "head.mix", d.Tokens*n), R: room[A](m, "head.r", d.Tokens)}
	dhead := HeadInputs[S, P, A]{
		X: room[S](m, "head.dx", big), Phi: room[P](m, "head.dphi", n*d.Channels*n),
		B: room[A](m, "head.db", n), Alpha: room[A](m, "head.dalpha", 1),
	}
	require.NoError(t, Head(y, kept, head, d, cfg))
	require.NoError(t, HeadBackward(dhead, head, kept, up, d, cfg))
	r["head"], r["head.mix"], r["head.r"] = widen(y), widen(kept.Mix), widen(kept.R)
	r["head.dx"], r["head.dphi"], r["head.db"], r["head.dalpha"] = widen(dhead.X), widen(dhead.Phi), widen(dhead.B), widen(dhead.Alpha)

	for _, check := range m.checks {
		check()
	}
	return r
}

// distance is |got - want| / |size|; without a size, by that of want, and where
// that is zero, by 1.
func distance(got, want, size []float64) float64 {
	if size == nil {
		size = want
	}
	diff := make([]float64, len(want))
	floats.SubTo(diff, got, want)
	if n := floats.Norm(size, 2); n > 0 {
		return floats.Norm(diff, 2) / n
	}
	return floats.Norm(diff, 2)
}

// inSixteenBits are the results of type S; the other results are of type A.
var inSixteenBits = map[string]bool{
	"expand": true, "expand.dx": true, "pre": true, "pre.dx": true, "postres": true,
	"postres.dx": true, "postres.df": true, "head": true, "head.dx": true,
}

func describe(d Dims, apply mhc.Apply, cfg mhc.HeadConfig) string {
	return fmt.Sprintf("N=%d,n=%d,C=%d,%v,%v", d.Tokens, d.Streams, d.Channels, apply, cfg.Phi)
}
