package tests

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/floats"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/op"
)

// drawCase draws a small case in float64.
func drawCase(t *rapid.T) (coeffsCase, machine.Kind) {
	preset := rapid.SampledFrom(mhc.Presets).Draw(t, "preset")
	cfg := preset.Config(rapid.IntRange(1, 6).Draw(t, "n"))
	cfg.Sinkhorn.Iterations = rapid.IntRange(1, 20).Draw(t, "T")
	lead := rapid.SliceOfN(rapid.IntRange(1, 4), 1, 3).Draw(t, "lead")
	c := newCase(cfg, rapid.IntRange(1, 9).Draw(t, "C"), tensor.Float64, rapid.Uint64().Draw(t, "seed"), lead...)
	return c, rapid.SampledFrom(machine.Kinds).Draw(t, "machine")
}

func close(t *rapid.T, name string, want, got []float64) {
	if d := floats.Distance(want, got, 2); !(d <= 1e-10*(1+floats.Norm(want, 2))) {
		t.Fatalf("%s differs by %v:\n%v\n%v", name, d, want, got)
	}
}

// Renaming the streams, in x and in what phi and b make of them, renames those
// of the coefficients and of every gradient.
func TestPermutedStreams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, kind := drawCase(t)
		n, ch, m := c.cfg.Streams, c.channels, c.cfg.Width()
		perm := rapid.Permutation(upTo(n)).Draw(t, "permutation")
		// columns maps a column of the permuted problem to the one it came from.
		columns := make([]int, 0, m)
		for part := range 2 {
			for _, i := range perm {
				columns = append(columns, part*n+i)
			}
		}
		for _, o := range perm {
			for _, i := range perm {
				columns = append(columns, 2*n+o*n+i)
			}
		}
		rows := make([]int, 0, n*ch) // of a token
		for _, i := range perm {
			for k := range ch {
				rows = append(rows, i*ch+k)
			}
		}
		phi := make([]int, 0, len(rows)*m)
		if c.cfg.Phi == mhc.PhiMK {
			for _, j := range columns {
				for _, k := range rows {
					phi = append(phi, j*n*ch+k)
				}
			}
		} else {
			for _, k := range rows {
				for _, j := range columns {
					phi = append(phi, k*m+j)
				}
			}
		}
		res := make([]int, 0, n*n)
		for _, j := range columns[2*n:] {
			res = append(res, j-2*n)
		}
		p := c
		p.x, p.phi, p.b = gather(c.x, rows), gather(c.phi, phi), gather(c.b, columns)
		p.up = [3][]float64{gather(c.up[0], perm), gather(c.up[1], perm), gather(c.up[2], res)}

		want, got := c.run(t, kind), p.run(t, kind)
		close(t, "h_pre", gather(want.pre, perm), got.pre)
		close(t, "h_post", gather(want.post, perm), got.post)
		close(t, "h_res", gather(want.res, res), got.res)
		close(t, "dx", gather(want.x, rows), got.x)
		close(t, "dphi", gather(want.phi, phi), got.phi)
		close(t, "db", gather(want.b, columns), got.b)
		close(t, "dalpha", want.alpha, got.alpha)
	})
}

// gather applies an index within every block of its length.
func gather(v []float64, index []int) []float64 {
	out := make([]float64, 0, len(v))
	for block := range slices.Chunk(v, len(index)) {
		for _, i := range index {
			out = append(out, block[i])
		}
	}
	return out
}

func upTo(n int) []int {
	v := make([]int, n)
	for i := range v {
		v[i] = i
	}
	return v
}

// Every token twice: the same coefficients and dx, twice the gradients of the
// parameters.
func TestDoubledTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, kind := drawCase(t)
		twice := c
		twice.lead = append([]int{2}, c.lead...)
		twice.x = slices.Repeat(c.x, 2)
		for i, up := range c.up {
			twice.up[i] = slices.Repeat(up, 2)
		}
		want, got := c.run(t, kind), twice.run(t, kind)
		assert.Equal(t, slices.Repeat(want.pre, 2), got.pre)
		assert.Equal(t, slices.Repeat(want.post, 2), got.post)
		assert.Equal(t, slices.Repeat(want.res, 2), got.res)
		assert.Equal(t, slices.Repeat(want.x, 2), got.x)
		close(t, "dphi", scaled(2, want.phi), got.phi)
		close(t, "db", scaled(2, want.b), got.b)
		close(t, "dalpha", scaled(2, want.alpha), got.alpha)
	})
}

func scaled(s float64, v []float64) []float64 { return floats.ScaleTo(make([]float64, len(v)), s, v) }

// The root mean square takes the size of a token away: with an eps of 0 the
// coefficients do not depend on it, and dx is orthogonal to the token.
func TestSizeOfTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, kind := drawCase(t)
		c.cfg.RMSEps = 0
		big := c
		big.x = scaled(1024, c.x)
		want, got := c.run(t, kind), big.run(t, kind)
		close(t, "h_pre", want.pre, got.pre)
		close(t, "h_res", want.res, got.res)
		close(t, "dphi", want.phi, got.phi)
		close(t, "dx", want.x, scaled(1024, got.x))
		k := c.cfg.Streams * c.channels
		for token := 0; token < len(c.x); token += k {
			x, dx := c.x[token:token+k], want.x[token:token+k]
			if d := floats.Dot(x, dx); !(math.Abs(d) <= 1e-12*floats.Norm(x, 2)*(1+floats.Norm(dx, 2))) {
				t.Fatalf("token %d: <x, dx> = %v", token/k, d)
			}
		}
	})
}

// A token of zeros has mix = 0: its coefficients are those of b, and they do not
// depend on phi and alpha.
func TestZeroToken(t *testing.T) {
	for _, kind := range machine.Kinds {
		for _, preset := range mhc.Presets {
			c := newCase(preset.Config(3), 5, tensor.Float64, 1, 2)
			clear(c.x)
			r := c.run(t, kind)
			for i := range 3 {
				assert.InDelta(t, 1/(1+math.Exp(-c.b[i]))+c.cfg.PreEps, r.pre[i], 1e-15)
				assert.InDelta(t, 2/(1+math.Exp(-c.b[3+i])), r.post[i], 1e-15)
			}
			assert.Equal(t, r.res[:9], r.res[9:])
			assert.Equal(t, make([]float64, len(r.phi)), r.phi)
			assert.Equal(t, make([]float64, 3), r.alpha)
			assert.NotEqual(t, make([]float64, len(r.b)), r.b)
		}
	}
}

// Logits of at most 1 in size are projected to a doubly stochastic matrix: an
// iteration brings its distance from one down to tanh(1)^2 of it.
func TestSumsOfTheProjection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, kind := drawCase(t)
		c.cfg.Sinkhorn.Iterations = 20
		clear(c.alpha) // the logits are b
		for i, b := range c.b {
			c.b[i] = max(-1, min(1, 2*b))
		}
		n := c.cfg.Streams
		for m := range slices.Chunk(c.run(t, kind).res, n*n) {
			for i := range n {
				var row, column float64
				for j := range n {
					row += m[i*n+j]
					column += m[j*n+i]
				}
				if !(math.Abs(row-1) < 2e-4 && math.Abs(column-1) < 2e-4) {
					t.Fatalf("row %d sums to %v, column %d to %v: %v", i, row, i, column, m)
				}
			}
		}
	})
}

// Logits of +-1e4 and more give finite results and gradients.
func TestHugeLogits(t *testing.T) {
	for _, kind := range machine.Kinds {
		for _, preset := range mhc.Presets {
			for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64, op.BFloat16, op.Float16} {
				for _, n := range []int{1, 2, 4, 7} {
					c := newCase(preset.Config(n), 8, dt, 2, 9)
					c.alpha = []float64{1e4, -1e4, 1e4}
					for name, v := range c.run(t, kind).all() {
						for i, x := range v {
							if math.IsNaN(x) || math.IsInf(x, 0) {
								t.Fatalf("%v %v n=%d: %s[%d] is %v", preset, dt, n, name, i, x)
							}
						}
					}
				}
			}
		}
	}
}

// A NaN in a token makes all its coefficients NaN, no other's, and shows in every
// gradient that it is part of.
func TestNaNToken(t *testing.T) {
	nan := func(v []float64) bool { return !slices.ContainsFunc(v, func(x float64) bool { return !math.IsNaN(x) }) }
	for _, kind := range machine.Kinds {
		for _, preset := range mhc.Presets {
			for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64, op.BFloat16, op.Float16} {
				const tokens, n, k = 5, 4, 4 * 6
				c := newCase(preset.Config(n), k/n, dt, 3, tokens)
				clean := c.run(t, kind)
				c.x[2*k+7] = math.NaN()
				r := c.run(t, kind)
				for _, part := range []struct {
					name      string
					got, want []float64
				}{{"h_pre", r.pre, clean.pre}, {"h_post", r.post, clean.post}, {"h_res", r.res, clean.res}, {"dx", r.x, clean.x}} {
					size := len(part.got) / tokens
					for token := range tokens {
						got, want := part.got[token*size:(token+1)*size], part.want[token*size:(token+1)*size]
						if token == 2 {
							require.True(t, nan(got), "%v %v %v: %s of the token is %v", kind, preset, dt, part.name, got)
						} else {
							require.Equal(t, want, got, part.name)
						}
					}
				}
				for name, v := range map[string][]float64{"dphi": r.phi, "db": r.b, "dalpha": r.alpha} {
					require.True(t, nan(v), "%v %v %v: %s is %v", kind, preset, dt, name, v)
				}
			}
		}
	}
}

// An identity h_res with h_post = 0 carries the streams unchanged to the last
// bit.
func TestIdentityMixing(t *testing.T) {
	for _, kind := range machine.Kinds {
		for _, apply := range []mhc.Apply{mhc.ApplyRows, mhc.ApplyTransposed} {
			for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64, op.BFloat16, op.Float16} {
				const tokens, n, channels = 3, 5, 33
				a := tensor.Float32
				if dt == tensor.Float64 {
					a = dt
				}
				rng := rand.New(rand.NewPCG(1, 2))
				x := make([]float64, tokens*n*channels)
				for i := range x {
					x[i] = rng.NormFloat64()
				}
				hres := make([]float64, tokens*n*n)
				for i := range tokens * n {
					hres[i/n*n*n+i%n*(n+1)] = 1
				}
				g := gorgonia.NewGraph()
				xn := node(g, "x", dt, x, tokens, n, channels)
				out, err := op.PostRes(xn, node(g, "f", dt, x[:tokens*channels], tokens, channels),
					node(g, "hpost", a, make([]float64, tokens*n), tokens, n), node(g, "hres", a, hres, tokens, n, n), apply)
				require.NoError(t, err)
				if dt != a { // a LispMachine takes no root of 16 bits
					out, err = op.Cast(out, a)
					require.NoError(t, err)
				}
				vm, err := machine.New(kind, machine.Program{Graph: g, Outputs: gorgonia.Nodes{out}})
				require.NoError(t, err)
				r, err := vm.Run()
				require.NoError(t, err)
				assert.Equal(t, wide(xn.Value()), wide(r.Outputs[0]))
			}
		}
	}
}
