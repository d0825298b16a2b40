package op_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/coeffs"
	"github.com/mhc-go/mhc/op"
)

// BenchmarkCoeffs compares forward and backward in a graph with the functions on
// slices that it calls.
func BenchmarkCoeffs(b *testing.B) {
	const tokens, n, channels = 512, 4, 256
	cfg := mhc.Liger.Config(n)
	m, k := cfg.Width(), n*channels
	rng := randoms(11)
	in := []operand{
		random(rng, "x", tensor.Float32, tokens, n, channels),
		random(rng, "phi", tensor.Float32, k, m),
		random(rng, "b", tensor.Float32, m),
		random(rng, "alpha", tensor.Float32, 3),
	}
	b.Run("graph", func(b *testing.B) {
		p := programOf(b, func(in gorgonia.Nodes) (gorgonia.Nodes, error) {
			c, err := op.Coeffs(in[0], in[1], in[2], in[3], cfg)
			if err != nil {
				return nil, err
			}
			return allUsed.nodes(c)
		}, in)
		benchmarkTape(b, p.Loss, p.Inputs, nil)
	})
	b.Run("slices", func(b *testing.B) {
		ci := coeffs.Inputs[float32, float32, float32]{X: data[float32](in[0].dense()), Phi: data[float32](in[1].dense()), B: data[float32](in[2].dense()), Alpha: data[float32](in[3].dense())}
		b.ReportAllocs()
		for b.Loop() {
			out := coeffs.Outputs[float32]{Pre: make([]float32, tokens*n), Post: make([]float32, tokens*n), Res: make([]float32, tokens*n*n), Mix: make([]float32, tokens*m), R: make([]float32, tokens)}
			require.NoError(b, coeffs.Forward(out, ci, tokens, channels, cfg))
			g := coeffs.Gradients[float32, float32, float32]{X: make([]float32, len(ci.X)), Phi: make([]float32, len(ci.Phi)), B: make([]float32, m), Alpha: make([]float32, 3)}
			require.NoError(b, coeffs.Backward(g, coeffs.Upstream[float32]{Pre: out.Pre, Post: out.Post, Res: out.Res}, ci, out, tokens, channels, cfg))
		}
	})
}

// BenchmarkLayers is forward and backward of four layers around the identity.
func BenchmarkLayers(b *testing.B) {
	const tokens, n, channels, layers = 512, 4, 256, 4
	cfg := mhc.Liger.Config(n)
	m := cfg.Width()
	for _, storage := range []tensor.Dtype{tensor.Float32, op.BFloat16} {
		for _, arena := range []*op.Arena{nil, op.NewArena()} {
			b.Run(fmt.Sprintf("%s/arena=%t", storage.Name(), arena != nil), func(b *testing.B) {
				rng := randoms(12)
				in := []operand{random(rng, "x", storage, tokens, n, channels)}
				for l := range layers {
					in = append(in,
						random(rng, fmt.Sprint("phi", l), tensor.Float32, n*channels, m),
						random(rng, fmt.Sprint("b", l), tensor.Float32, m),
						random(rng, fmt.Sprint("alpha", l), tensor.Float32, 3))
				}
				p := programOf(b, func(in gorgonia.Nodes) (gorgonia.Nodes, error) {
					x := in[0]
					for l := range layers {
						var err error
						if x, err = layer(x, in[1+3*l:], cfg, func(h *gorgonia.Node) (*gorgonia.Node, error) { return h, nil }); err != nil {
							return nil, err
						}
					}
					return gorgonia.Nodes{x}, nil
				}, in)
				benchmarkTape(b, p.Loss, p.Inputs, arena)
			})
		}
	}
}

func benchmarkTape(b *testing.B, loss *gorgonia.Node, inputs gorgonia.Nodes, arena *op.Arena) {
	_, err := gorgonia.Grad(loss, inputs...)
	require.NoError(b, err)
	var opts []gorgonia.VMOpt
	if arena != nil {
		opts = append(opts, gorgonia.WithEngine(arena))
	}
	vm := gorgonia.NewTapeMachine(loss.Graph(), opts...)
	defer vm.Close()
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, vm.RunAll())
		vm.Reset()
		if arena != nil {
			arena.Recycle()
		}
	}
}
