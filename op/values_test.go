package op_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/coeffs"
	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/op"
	"github.com/mhc-go/mhc/rmsnorm"
	"github.com/mhc-go/mhc/sinkhorn"
	"github.com/mhc-go/mhc/streams"
)

// Every op's values and gradients are, to the last bit, those of the slice
// packages, in every supported combination of dtypes and in every preset.
func TestValues(t *testing.T) {
	for _, preset := range mhc.Presets {
		t.Run(preset.String(), func(t *testing.T) {
			t.Run("float64", func(t *testing.T) { testValues[float64, float64, float64](t, preset) })
			t.Run("float32", func(t *testing.T) { testValues[float32, float32, float32](t, preset) })
			t.Run("bfloat16", func(t *testing.T) { testValues[dtype.BFloat16, dtype.BFloat16, float32](t, preset) })
			t.Run("bfloat16 with float32 phi", func(t *testing.T) { testValues[dtype.BFloat16, float32, float32](t, preset) })
			t.Run("float16", func(t *testing.T) { testValues[dtype.Float16, dtype.Float16, float32](t, preset) })
			t.Run("float16 with float32 phi", func(t *testing.T) { testValues[dtype.Float16, float32, float32](t, preset) })
		})
	}
}

func testValues[S, P dtype.Storage, A dtype.Float](t *testing.T, preset mhc.Preset) {
	s := sizes{lead: []int{2, 3}, n: 3, channels: 5}
	cfg := preset.Config(s.n)
	cfg.Sinkhorn.Iterations = 3
	const tokens = 6
	d := streams.Dims{Tokens: tokens, Streams: s.n, Channels: s.channels}
	m := cfg.Width()
	for _, c := range opCases(s, dtypeOf[S](), dtypeOf[P](), dtypeOf[A](), preset) {
		in := make([]*tensor.Dense, len(c.in))
		for i, o := range c.in {
			in[i] = o.dense()
		}
		var want []any                 // the values of the outputs
		var grads func(up []any) []any // the gradients of the inputs
		switch c.name {
		case "MatMulRMS":
			rd := rmsnorm.Dims{Tokens: tokens, K: s.n * s.channels, M: 5, Transposed: cfg.Phi == mhc.PhiMK}
			mix, r := make([]A, tokens*rd.M), make([]A, tokens)
			x, phi := data[S](in[0]), data[P](in[1])
			require.NoError(t, rmsnorm.Forward(mix, r, x, phi, rd, cfg.RMSEps))
			want = []any{mix}
			grads = func(up []any) []any {
				dx, dphi := make([]S, len(x)), make([]P, len(phi))
				require.NoError(t, rmsnorm.Backward(dx, dphi, x, phi, mix, r, up[0].([]A), rd))
				return []any{dx, dphi}
			}
		case "Sinkhorn":
			logits := data[A](in[0])
			p := make([]A, len(logits))
			require.NoError(t, sinkhorn.Forward(p, logits, s.n, cfg.Sinkhorn))
			want = []any{p}
			grads = func(up []any) []any {
				dl := make([]A, len(logits))
				require.NoError(t, sinkhorn.Backward(dl, logits, up[0].([]A), s.n, cfg.Sinkhorn))
				return []any{dl}
			}
		case "Pre":
			x, hpre := data[S](in[0]), data[A](in[1])
			out := make([]S, tokens*s.channels)
			require.NoError(t, streams.Pre(out, x, hpre, d))
			want = []any{out}
			grads = func(up []any) []any {
				dx, dh := make([]S, len(x)), make([]A, len(hpre))
				require.NoError(t, streams.PreBackward(dx, dh, x, hpre, up[0].([]S), d))
				return []any{dx, dh}
			}
		case "PostRes":
			x, f, hpost, hres := data[S](in[0]), data[S](in[1]), data[A](in[2]), data[A](in[3])
			out := make([]S, len(x))
			require.NoError(t, streams.PostRes(out, x, f, hpost, hres, d, cfg.Apply))
			want = []any{out}
			grads = func(up []any) []any {
				g := streams.PostResGradients[S, A]{X: make([]S, len(x)), F: make([]S, len(f)), HPost: make([]A, len(hpost)), HRes: make([]A, len(hres))}
				require.NoError(t, streams.PostResBackward(g, x, f, hpost, hres, up[0].([]S), d, cfg.Apply))
				return []any{g.X, g.F, g.HPost, g.HRes}
			}
		case "Streams":
			x := data[S](in[0])
			out := make([]S, tokens*s.n*s.channels)
			require.NoError(t, streams.Expand(out, x, d))
			want = []any{out}
			grads = func(up []any) []any {
				dx := make([]S, len(x))
				require.NoError(t, streams.ExpandBackward(dx, up[0].([]S), d))
				return []any{dx}
			}
		case "Head":
			h := streams.HeadInputs[S, P, A]{X: data[S](in[0]), Phi: data[P](in[1]), B: data[A](in[2]), Alpha: data[A](in[3])}
			out := make([]S, tokens*s.channels)
			kept := streams.HeadKept[A]{Mix: make([]A, tokens*s.n), R: make([]A, tokens)}
			require.NoError(t, streams.Head(out, kept, h, d, cfg.Head()))
			want = []any{out}
			grads = func(up []any) []any {
				g := streams.HeadInputs[S, P, A]{X: make([]S, len(h.X)), Phi: make([]P, len(h.Phi)), B: make([]A, len(h.B)), Alpha: make([]A, 1)}
				require.NoError(t, streams.HeadBackward(g, h, kept, up[0].([]S), d, cfg.Head()))
				return []any{g.X, g.Phi, g.B, g.Alpha}
			}
		case "Coeffs/{pre:true post:true res:true}":
			ci := coeffs.Inputs[S, P, A]{X: data[S](in[0]), Phi: data[P](in[1]), B: data[A](in[2]), Alpha: data[A](in[3])}
			out := coeffs.Outputs[A]{Pre: make([]A, tokens*s.n), Post: make([]A, tokens*s.n), Res: make([]A, tokens*s.n*s.n), Mix: make([]A, tokens*m), R: make([]A, tokens)}
			require.NoError(t, coeffs.Forward(out, ci, tokens, s.channels, cfg))
			want = []any{out.Pre, out.Post, out.Res}
			grads = func(up []any) []any {
				g := coeffs.Gradients[S, P, A]{X: make([]S, len(ci.X)), Phi: make([]P, len(ci.Phi)), B: make([]A, m), Alpha: make([]A, 3)}
				u := coeffs.Upstream[A]{Pre: up[0].([]A), Post: up[1].([]A), Res: up[2].([]A)}
				require.NoError(t, coeffs.Backward(g, u, ci, out, tokens, s.channels, cfg))
				return []any{g.X, g.Phi, g.B, g.Alpha}
			}
		default:
			continue // the other subsets of Coeffs' outputs
		}
		t.Run(c.name, func(t *testing.T) {
			eachMachine(t, func(t *testing.T, kind machine.Kind) {
				p := programOf(t, c.build, c.in)
				r := run(t, kind, p)
				var up []any
				for i, n := range p.Outputs {
					assert.Equal(t, want[i], r.Outputs[i].Data())
					up = append(up, upstream(t, kind, n).Data())
				}
				for i, g := range grads(up) {
					assert.Equal(t, g, r.Gradients[i].Data(), "gradient of %s", c.in[i].name)
				}
			})
		})
	}
}

// upstream is the gradient of the loss by a node.
func upstream(t *testing.T, kind machine.Kind, n *gorgonia.Node) gorgonia.Value {
	if kind == machine.Tape {
		return n.Deriv().Value()
	}
	g, err := n.Grad()
	require.NoError(t, err)
	return g
}

func data[T dtype.Storage](d *tensor.Dense) []T { return d.Data().([]T) }

func dtypeOf[T dtype.Storage]() tensor.Dtype {
	var zero T
	switch any(zero).(type) {
	case float32:
		return tensor.Float32
	case float64:
		return tensor.Float64
	case dtype.BFloat16:
		return op.BFloat16
	}
	return op.Float16
}

func TestCastValues(t *testing.T) {
	all := []tensor.Dtype{tensor.Float64, tensor.Float32, op.BFloat16, op.Float16}
	x := random(randoms(3), "x", tensor.Float64, 3, 700) // more than one chunk
	x.data[0], x.data[1] = 0, 65504
	for _, from := range all {
		for _, to := range all {
			t.Run(from.String()+" to "+to.String(), func(t *testing.T) {
				eachMachine(t, func(t *testing.T, kind machine.Kind) {
					in := x
					in.dtype = from
					p := programOf(t, func(in gorgonia.Nodes) (gorgonia.Nodes, error) { return one(op.Cast(in[0], to)) }, []operand{in})
					r := run(t, kind, p)
					want := operand{dtype: to, shape: x.shape, data: numbers(t, in.dense())}
					assert.Equal(t, want.dense().Data(), r.Outputs[0].Data())
					up := operand{dtype: from, shape: x.shape, data: numbers(t, upstream(t, kind, p.Outputs[0]))}
					assert.Equal(t, up.dense().Data(), r.Gradients[0].Data())
				})
			})
		}
	}
}
