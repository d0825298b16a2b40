package coeffs_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mhc-go/mhc/coeffs"
)

func drawProblem(t *rapid.T) *problem {
	n := rapid.IntRange(1, 5).Draw(t, "n")
	cfg := rapid.SampledFrom(settings(n)).Draw(t, "setting")
	return sample(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 40).Draw(t, "tokens"), rapid.IntRange(1, 6).Draw(t, "channels"), cfg)
}

// Twice the tokens give the same coefficients twice, and twice the gradients of
// the parameters.
func TestDoublingTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		twice := *p
		twice.tokens *= 2
		for _, a := range []*[]float64{&twice.x, &twice.upPre, &twice.upPost, &twice.upRes} {
			*a = append(append([]float64(nil), *a...), *a...)
		}
		once, both := operandsOf[float64, float64, float64](p), operandsOf[float64, float64, float64](&twice)
		once.run(t, p)
		both.run(t, &twice)
		require.Equal(t, append(once.out.Res, once.out.Res...), both.out.Res)
		for _, g := range [][2][]float64{{once.grad.B, both.grad.B}, {once.grad.Alpha, both.grad.Alpha}, {once.grad.Phi, both.grad.Phi}} {
			for i, v := range g[0] {
				require.InDelta(t, 2*v, g[1][i], 1e-11)
			}
		}
	})
}

// Streams have no order: with those of x permuted, and with them phi's rows and
// the columns of phi and b, the same coefficients come out permuted.
func TestPermutingStreams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := drawProblem(t)
		n, m, c := p.cfg.Streams, p.cfg.Width(), p.channels
		index := make([]int, n)
		for i := range index {
			index[i] = i
		}
		order := rapid.Permutation(index).Draw(t, "order")
		columns := make([]int, m) // of the permuted problem in the given one
		for i, from := range order {
			columns[i], columns[n+i] = from, n+from
			for j, to := range order {
				columns[2*n+i*n+j] = 2*n + from*n + to
			}
		}
		q := *p
		q.x, q.phi, q.b = make([]float64, len(p.x)), make([]float64, len(p.phi)), make([]float64, m)
		for k := range q.x {
			q.x[k] = p.x[k/(n*c)*n*c+order[k/c%n]*c+k%c]
		}
		for k := range n * c {
			for j := range m {
				q.phi[k*m+j] = p.phi[(order[k/c]*c+k%c)*m+columns[j]]
			}
		}
		for j := range m {
			q.b[j] = p.b[columns[j]]
		}
		given, permuted := operandsOf[float64, float64, float64](p), operandsOf[float64, float64, float64](&q)
		given.run(t, p)
		permuted.run(t, &q)
		for token := range p.tokens {
			for i, from := range order {
				require.InDelta(t, given.out.Pre[token*n+from], permuted.out.Pre[token*n+i], 1e-12)
				require.InDelta(t, given.out.Post[token*n+from], permuted.out.Post[token*n+i], 1e-12)
				for j, to := range order {
					require.InDelta(t, given.out.Res[(token*n+from)*n+to], permuted.out.Res[(token*n+i)*n+j], 1e-12)
				}
			}
		}
	})
}

// Central differences of the loss along every number of b and alpha, and along
// random directions of x and phi.
func TestCentralDifferences(t *testing.T) {
	rng := rand.New(rand.NewPCG(18, 1))
	for _, n := range []int{1, 2, 3, 4, 5} {
		for _, cfg := range settings(n) {
			p := sample(19, 3, 4, cfg)
			o := operandsOf[float64, float64, float64](p)
			o.run(t, p)
			check := func(name string, input, grad []float64, direction func(i int) float64) {
				base, want := append([]float64(nil), input...), 0.0
				var along []float64
				for i := range input {
					along = append(along, direction(i))
					want += along[i] * grad[i]
				}
				loss := func(step float64) (sum float64) {
					for i, v := range base {
						input[i] = v + step*along[i]
					}
					out := o.out
					require.NoError(t, coeffs.Forward(out, o.in, p.tokens, p.channels, p.cfg))
					for _, c := range [][2][]float64{{out.Pre, o.up.Pre}, {out.Post, o.up.Post}, {out.Res, o.up.Res}} {
						for i, v := range c[0] {
							sum += v * c[1][i]
						}
					}
					return sum
				}
				const h = 1e-5
				require.InDelta(t, (loss(h)-loss(-h))/(2*h), want, 1e-8*max(1, math.Abs(want)), "n=%d, %s", n, name)
				copy(input, base)
			}
			for j := range o.in.B {
				check("b", o.in.B, o.grad.B, func(i int) float64 { return map[bool]float64{true: 1}[i == j] })
			}
			for j := range o.in.Alpha {
				check("alpha", o.in.Alpha, o.grad.Alpha, func(i int) float64 { return map[bool]float64{true: 1}[i == j] })
			}
			for range 3 {
				check("x", o.in.X, o.grad.X, func(int) float64 { return rng.NormFloat64() })
				check("phi", o.in.Phi, o.grad.Phi, func(int) float64 { return rng.NormFloat64() })
			}
		}
	}
}
