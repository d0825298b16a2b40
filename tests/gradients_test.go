package tests

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/op"
	"github.com/mhc-go/mhc/sinkhorn"
	"github.com/mhc-go/mhc/tests/gradcheck"
)

// The sizes that every operator is differentiated at.
var (
	streamCounts    = []int{1, 2, 3, 4, 5, 8, 16}
	channelCounts   = []int{1, 7, 32}
	iterationCounts = []int{1, 2, 20}
)

const tokens = 2

// thorough says how an operator of this size is compared: small ones element by
// element, all along directions.
func thorough(n, channels int) gradcheck.Config {
	return gradcheck.Config{Elements: n <= 3 && channels <= 7, Tolerance: 1e-7}
}

// normal is an input of the given shape, scale times standard normal numbers
// drawn by its name.
func normal(name string, scale float64, shape ...int) gradcheck.Input {
	rng := rand.New(rand.NewPCG(uint64(len(name)), uint64(name[0])))
	data := make([]float64, tensor.Shape(shape).TotalSize())
	for i := range data {
		data[i] = scale * rng.NormFloat64()
	}
	return gradcheck.Input{Name: name, Value: tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))}
}

// weighted is the sum over the outputs of fixed random weights times them, so
// that every number of every output has an upstream gradient of its own.
func weighted(outputs ...*gorgonia.Node) (*gorgonia.Node, error) {
	var loss *gorgonia.Node
	for i, out := range outputs {
		w := normal(fmt.Sprintf("w%d", i), 1, out.Shape()...)
		wn := gorgonia.NewTensor(out.Graph(), tensor.Float64, out.Dims(), gorgonia.WithName(w.Name), gorgonia.WithShape(out.Shape()...), gorgonia.WithValue(w.Value.Clone()))
		part, err := gorgonia.HadamardProd(out, wn)
		if err != nil {
			return nil, err
		}
		if part, err = gorgonia.Sum(part); err != nil {
			return nil, err
		}
		if loss == nil {
			loss = part
		} else if loss, err = gorgonia.Add(loss, part); err != nil {
			return nil, err
		}
	}
	return loss, nil
}

// of makes a build function of an operator with one output.
func of(apply func(in gorgonia.Nodes) (*gorgonia.Node, error)) gradcheck.Build {
	return func(_ *gorgonia.ExprGraph, in gorgonia.Nodes) (*gorgonia.Node, error) {
		out, err := apply(in)
		if err != nil {
			return nil, err
		}
		return weighted(out)
	}
}

// phiShape is the shape of phi with m columns.
func phiShape(layout mhc.PhiLayout, k, m int) []int {
	if layout == mhc.PhiMK {
		return []int{m, k}
	}
	return []int{k, m}
}

func TestCoeffsGradients(t *testing.T) {
	for _, n := range streamCounts {
		t.Run(fmt.Sprintf("n=%d", n), func(t *testing.T) {
			t.Parallel()
			for _, preset := range mhc.Presets {
				for _, channels := range channelCounts {
					for _, iterations := range iterationCounts {
						for used := 1; used < 8; used++ {
							cfg := preset.Config(n)
							cfg.Sinkhorn.Iterations = iterations
							checkCoeffs(t, cfg, channels, used)
						}
					}
				}
			}
		})
	}
}

// checkCoeffs differentiates the coefficients through the outputs whose bits
// (pre, post, res) are set in used.
func checkCoeffs(t *testing.T, cfg mhc.Config, channels, used int) {
	t.Helper()
	k, m := cfg.Streams*channels, cfg.Width()
	inputs := []gradcheck.Input{
		normal("x", 1, tokens, cfg.Streams, channels),
		normal("phi", 1/float64(channels), phiShape(cfg.Phi, k, m)...),
		normal("b", 0.5, m),
		normal("alpha", 1, 3),
	}
	build := func(_ *gorgonia.ExprGraph, in gorgonia.Nodes) (*gorgonia.Node, error) {
		c, err := op.Coeffs(in[0], in[1], in[2], in[3], cfg)
		if err != nil {
			return nil, err
		}
		var outputs []*gorgonia.Node
		for bit, output := range []func() (*gorgonia.Node, error){c.Pre, c.Post, c.Res} {
			if used>>bit&1 == 1 {
				out, err := output()
				if err != nil {
					return nil, err
				}
				outputs = append(outputs, out)
			}
		}
		return weighted(outputs...)
	}
	if _, err := gradcheck.Check(build, inputs, thorough(cfg.Streams, channels)); err != nil {
		t.Errorf("%+v, C=%d, used %03b: %v", cfg, channels, used, err)
	}
}

// Tokens of zeros, where the root mean square is that of the eps alone.
func TestZeroTokenGradients(t *testing.T) {
	cfg := mhc.Liger.Config(3)
	x := normal("x", 0, tokens, 3, 4)
	gradcheck.Test(t, of(func(in gorgonia.Nodes) (*gorgonia.Node, error) {
		return op.MatMulRMS(in[0], in[1], op.MatMulRMSConfig{RMSEps: cfg.RMSEps})
	}), []gradcheck.Input{x, normal("phi", 1, 12, 5)}, gradcheck.Config{Step: 1e-8, Elements: true})
}

func TestSinkhornGradients(t *testing.T) {
	for _, start := range []sinkhorn.Start{sinkhorn.RowSoftmax, sinkhorn.Exp} {
		for _, end := range []sinkhorn.Axis{sinkhorn.Columns, sinkhorn.Rows} {
			for _, eps := range []float64{0, 1e-6, 0.01} {
				t.Run(fmt.Sprintf("%v-%v-%g", start, end, eps), func(t *testing.T) {
					t.Parallel()
					for _, n := range streamCounts {
						for _, iterations := range iterationCounts {
							cfg := sinkhorn.Config{Start: start, End: end, Iterations: iterations, Eps: eps}
							_, err := gradcheck.Check(of(func(in gorgonia.Nodes) (*gorgonia.Node, error) {
								return op.Sinkhorn(in[0], cfg)
							}), []gradcheck.Input{normal("logits", 2, tokens, n, n)}, gradcheck.Config{Elements: n <= 4})
							if err != nil {
								t.Errorf("n=%d %+v: %v", n, cfg, err)
							}
						}
					}
				})
			}
		}
	}
}

func TestMatMulRMSGradients(t *testing.T) {
	forSizes(t, func(t *testing.T, n, channels int) {
		for _, layout := range []mhc.PhiLayout{mhc.PhiKM, mhc.PhiMK} {
			for _, x := range []gradcheck.Input{normal("x", 1, tokens, n, channels), normal("x", 1, tokens, n*channels)} {
				for _, eps := range []float64{1e-6, 0.1} {
					gradcheck.Test(t, of(func(in gorgonia.Nodes) (*gorgonia.Node, error) {
						return op.MatMulRMS(in[0], in[1], op.MatMulRMSConfig{RMSEps: eps, Phi: layout})
					}), []gradcheck.Input{x, normal("phi", 1, phiShape(layout, n*channels, n+2)...)}, thorough(n, channels))
				}
			}
		}
	})
}

func TestPreGradients(t *testing.T) {
	forSizes(t, func(t *testing.T, n, channels int) {
		gradcheck.Test(t, of(func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			return op.Pre(in[0], in[1])
		}), []gradcheck.Input{normal("x", 1, tokens, n, channels), normal("hpre", 1, tokens, n)}, thorough(n, channels))
	})
}

func TestPostResGradients(t *testing.T) {
	forSizes(t, func(t *testing.T, n, channels int) {
		for _, apply := range []mhc.Apply{mhc.ApplyRows, mhc.ApplyTransposed} {
			gradcheck.Test(t, of(func(in gorgonia.Nodes) (*gorgonia.Node, error) {
				return op.PostRes(in[0], in[1], in[2], in[3], apply)
			}), []gradcheck.Input{
				normal("x", 1, tokens, n, channels), normal("f", 1, tokens, channels),
				normal("hpost", 1, tokens, n), normal("hres", 1, tokens, n, n),
			}, thorough(n, channels))
		}
	})
}

func TestStreamsGradients(t *testing.T) {
	forSizes(t, func(t *testing.T, n, channels int) {
		gradcheck.Test(t, of(func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			return op.Streams(in[0], n)
		}), []gradcheck.Input{normal("x", 1, tokens, channels)}, thorough(n, channels))
	})
}

func TestHeadGradients(t *testing.T) {
	forSizes(t, func(t *testing.T, n, channels int) {
		for _, preset := range mhc.Presets {
			cfg := preset.Config(n).Head()
			gradcheck.Test(t, of(func(in gorgonia.Nodes) (*gorgonia.Node, error) {
				return op.Head(in[0], in[1], in[2], in[3], cfg)
			}), []gradcheck.Input{
				normal("x", 1, tokens, n, channels),
				normal("phi", 1/float64(channels), phiShape(cfg.Phi, n*channels, n)...),
				normal("b", 0.5, n), normal("alpha", 1, 1),
			}, thorough(n, channels))
		}
	})
}

// Through float32 and back: linear but for the rounding, which a large step
// makes small.
func TestCastGradients(t *testing.T) {
	gradcheck.Test(t, of(func(in gorgonia.Nodes) (*gorgonia.Node, error) {
		y, err := op.Cast(in[0], tensor.Float32)
		if err != nil {
			return nil, err
		}
		return op.Cast(y, tensor.Float64)
	}), []gradcheck.Input{normal("x", 1, tokens, 3, 7)}, gradcheck.Config{Step: 0.1, Tolerance: 1e-5, Elements: true})
}

// Two layers in a chain with built-in operators before, between and after them,
// the streams used three times a layer.
func TestChainedLayersGradients(t *testing.T) {
	const n, channels = 3, 5
	for _, preset := range mhc.Presets {
		t.Run(preset.String(), func(t *testing.T) {
			t.Parallel()
			cfg := preset.Config(n)
			k, m := n*channels, cfg.Width()
			inputs := []gradcheck.Input{normal("embedded", 1, tokens, channels), normal("head", 1, phiShape(cfg.Phi, k, n)...), normal("bhead", 1, n), normal("ahead", 1, 1)}
			for _, l := range []string{"first", "last"} {
				inputs = append(inputs,
					normal(l+".phi", 1, phiShape(cfg.Phi, k, m)...), normal(l+".b", 1, m),
					normal(l+".alpha", 1, 3), normal(l+".w", 1, channels, channels))
			}
			build := func(_ *gorgonia.ExprGraph, in gorgonia.Nodes) (*gorgonia.Node, error) {
				x, err := gorgonia.Sin(in[0])
				if err != nil {
					return nil, err
				}
				if x, err = op.Streams(x, n); err != nil {
					return nil, err
				}
				for l := 4; l < len(in); l += 4 {
					if x, err = mhcLayer(x, in[l], in[l+1], in[l+2], cfg, tanhOf(in[l+3])); err != nil {
						return nil, err
					}
				}
				if x, err = op.Head(x, in[1], in[2], in[3], cfg.Head()); err != nil {
					return nil, err
				}
				return weighted(x)
			}
			gradcheck.Test(t, build, inputs, gradcheck.Config{Elements: true})
		})
	}
}

// The same weights in three layers: their gradients add up.
func TestTiedWeightsGradients(t *testing.T) {
	cfg := mhc.Liger.Config(3)
	gradcheck.Test(t, of(func(in gorgonia.Nodes) (x *gorgonia.Node, err error) {
		x = in[0]
		for range 3 {
			if x, err = mhcLayer(x, in[1], in[2], in[3], cfg, tanhOf(in[4])); err != nil {
				return nil, err
			}
		}
		return x, nil
	}), []gradcheck.Input{
		normal("x", 1, tokens, 3, 5), normal("phi", 1, 15, 15), normal("b", 1, 15), normal("alpha", 1, 3), normal("w", 1, 5, 5),
	}, gradcheck.Config{Elements: true})
}

// Any number of leading dimensions, none included, and more streams than any
// preset has.
func TestShapesGradients(t *testing.T) {
	for _, x := range [][]int{{4, 3}, {1, 1}, {1, 2, 3}, {2, 1, 2, 3, 5}, {2, 1, 2, 1, 3, 2}, {1, 17, 2}, {1, 33, 1}} {
		n, channels := x[len(x)-2], x[len(x)-1]
		cfg := mhc.DeepSeekV4.Config(n)
		m := cfg.Width()
		gradcheck.Test(t, of(func(in gorgonia.Nodes) (*gorgonia.Node, error) {
			return mhcLayer(in[0], in[1], in[2], in[3], cfg, gorgonia.Square)
		}), []gradcheck.Input{
			normal("x", 1, x...), normal("phi", 1, m, n*channels), normal("b", 1, m), normal("alpha", 1, 3),
		}, gradcheck.Config{Elements: n < 10})
	}
}

func tanhOf(w *gorgonia.Node) func(h *gorgonia.Node) (*gorgonia.Node, error) {
	return func(h *gorgonia.Node) (*gorgonia.Node, error) {
		h, err := gorgonia.Mul(h, w)
		if err != nil {
			return nil, err
		}
		return gorgonia.Tanh(h)
	}
}

// mhcLayer is a layer around f, made of the operators.
func mhcLayer(x, phi, b, alpha *gorgonia.Node, cfg mhc.Config, f func(*gorgonia.Node) (*gorgonia.Node, error)) (*gorgonia.Node, error) {
	c, err := op.Coeffs(x, phi, b, alpha, cfg)
	if err != nil {
		return nil, err
	}
	pre, err := c.Pre()
	if err != nil {
		return nil, err
	}
	h, err := op.Pre(x, pre)
	if err != nil {
		return nil, err
	}
	if h, err = f(h); err != nil {
		return nil, err
	}
	post, err := c.Post()
	if err != nil {
		return nil, err
	}
	res, err := c.Res()
	if err != nil {
		return nil, err
	}
	return op.PostRes(x, h, post, res, cfg.Apply)
}

func forSizes(t *testing.T, check func(t *testing.T, n, channels int)) {
	for _, n := range streamCounts {
		for _, channels := range channelCounts {
			t.Run(fmt.Sprintf("n=%d,C=%d", n, channels), func(t *testing.T) { check(t, n, channels) })
		}
	}
}
