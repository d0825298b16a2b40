package streams

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/floats"

	"github.com/mhc-go/mhc"
)

// A gradient is a result of a backward function: that of a loss by an operand.
type gradient struct {
	name    string
	operand func(in *numbers) *[]float64
	loss    func(in numbers) float64
}

// gradients are all of them, with the losses that random upstream gradients make
// of the forward functions' results.
func gradients(t *testing.T, d Dims, apply mhc.Apply, cfg mhc.HeadConfig) []gradient {
	big, one := d.Tokens*d.Streams*d.Channels, d.Tokens*d.Channels
	loss := func(out, up []float64, err error) float64 {
		require.NoError(t, err)
		return floats.Dot(out, up)
	}
	expand := func(in numbers) float64 {
		out := make([]float64, big)
		return loss(out, in.g, Expand(out, in.f, d))
	}
	pre := func(in numbers) float64 {
		out := make([]float64, one)
		return loss(out, in.up, Pre(out, in.x, in.hpre, d))
	}
	postres := func(in numbers) float64 {
		out := make([]float64, big)
		return loss(out, in.g, PostRes(out, in.x, in.f, in.hpost, in.hres, d, apply))
	}
	head := func(in numbers) float64 {
		out, kept := make([]float64, one), HeadKept[float64]{make([]float64, d.Tokens*d.Streams), make([]float64, d.Tokens)}
		return loss(out, in.up, Head(out, kept, HeadInputs[float64, float64, float64]{in.x, in.phi, in.b, in.alpha}, d, cfg))
	}
	x := func(in *numbers) *[]float64 { return &in.x }
	f := func(in *numbers) *[]float64 { return &in.f }
	return []gradient{
		{"expand.dx", f, expand},
		{"pre.dx", x, pre},
		{"pre.dhpre", func(in *numbers) *[]float64 { return &in.hpre }, pre},
		{"postres.dx", x, postres},
		{"postres.df", f, postres},
		{"postres.dhpost", func(in *numbers) *[]float64 { return &in.hpost }, postres},
		{"postres.dhres", func(in *numbers) *[]float64 { return &in.hres }, postres},
		{"head.dx", x, head},
		{"head.dphi", func(in *numbers) *[]float64 { return &in.phi }, head},
		{"head.db", func(in *numbers) *[]float64 { return &in.b }, head},
		{"head.dalpha", func(in *numbers) *[]float64 { return &in.alpha }, head},
	}
}

// slope is the central difference of the gradient's loss along a direction of
// its operand.
func (g gradient) slope(in numbers, direction []float64) float64 {
	const step = 1e-5
	at := func(step float64) float64 {
		moved := in
		p := g.operand(&moved)
		*p = floats.AddScaledTo(make([]float64, len(*p)), *p, step, direction)
		return g.loss(moved)
	}
	return (at(step) - at(-step)) / (2 * step)
}

// Every gradient, along a random direction of its operand.
func TestGradientsAlongDirections(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{1, 2, 3, 4, 5, 8, 16} {
		for _, channels := range []int{1, 7, 32, 33} {
			for k, tokens := range []int{0, 1, 2, 20} {
				d, apply, cfg := Dims{tokens, n, channels}, applies[(n+k)%2], config(channels+k)
				in := random[float64, float64, float64](d, uint64(n*channels))
				got := compute[float64, float64, float64](t, in, d, apply, cfg)
				for _, g := range gradients(t, d, apply, cfg) {
					direction := normal[float64](rng, len(got[g.name]), 1)
					bound := 1e-8 * (1 + floats.Norm(got[g.name], 2)*floats.Norm(direction, 2))
					assert.InDelta(t, g.slope(in, direction), floats.Dot(got[g.name], direction), bound, "%s of %s", g.name, describe(d, apply, cfg))
				}
			}
		}
	}
}

// Every element of every gradient of a small problem.
func TestGradientsByElement(t *testing.T) {
	d := Dims{2, 3, 5}
	for i, apply := range applies {
		cfg := config(i)
		in := random[float64, float64, float64](d, 7)
		got := compute[float64, float64, float64](t, in, d, apply, cfg)
		for _, g := range gradients(t, d, apply, cfg) {
			for e, v := range got[g.name] {
				unit := make([]float64, len(got[g.name]))
				unit[e] = 1
				assert.InDelta(t, g.slope(in, unit), v, 1e-8, "%s [%d], %v", g.name, e, apply)
			}
		}
	}
}
