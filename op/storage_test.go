package op_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/op"
)

// A stack whose streams and phi are stored in 16 bits, with casts around the
// built-in operators of each layer, follows the float32 one as far as 16 bits go.
// Its streams have three uses a layer, whose gradients are summed.
func Test16BitNetwork(t *testing.T) {
	for _, c := range []struct {
		storage tensor.Dtype
		bound   float64 // 8 and 16 times the largest rounding error of one number
	}{{op.BFloat16, 3e-2}, {op.Float16, 8e-3}} {
		t.Run(c.storage.String(), func(t *testing.T) {
			exact, n := smallNetwork(tensor.Float32), smallNetwork(c.storage)
			eachMachine(t, func(t *testing.T, kind machine.Kind) {
				want := run(t, kind, programOf(t, exact.build, exact.operands()))
				got := run(t, kind, programOf(t, n.build, n.operands()))
				requireClose(t, numbers(t, want.Outputs[0]), numbers(t, got.Outputs[0]), c.bound, "output")
				for i, o := range n.operands() {
					requireClose(t, numbers(t, want.Gradients[i]), numbers(t, got.Gradients[i]), c.bound, "gradient of %s", o.name)
				}
			})
		})
	}
}

// The gradients of a 16-bit node's uses are added in float32 and rounded once,
// however many uses there are.
func TestManyUsesOf16BitNode(t *testing.T) {
	const tokens, n, channels, uses = 2, 2, 3, 20
	rng := randoms(7)
	in := []operand{random(rng, "x", op.BFloat16, tokens, n, channels)}
	for i := range uses {
		in = append(in, random(rng, string(rune('a'+i)), tensor.Float32, tokens, n))
	}
	eachMachine(t, func(t *testing.T, kind machine.Kind) {
		p := programOf(t, func(in gorgonia.Nodes) (gorgonia.Nodes, error) {
			var out gorgonia.Nodes
			for _, h := range in[1:] {
				y, err := op.Pre(in[0], h)
				if err != nil {
					return nil, err
				}
				out = append(out, y)
			}
			return out, nil
		}, in)
		r := run(t, kind, p)
		sum := make([]float64, tokens*n*channels)
		size := 0.0 // of the largest term
		for i, o := range p.Outputs {
			g, h := numbers(t, upstream(t, kind, o)), numbers(t, p.Inputs[i+1].Value())
			for j := range sum {
				token, stream, c := j/(n*channels), j/channels%n, j%channels
				term := dtype.BFloat16FromFloat32(float32(h[token*n+stream]) * float32(g[token*channels+c]))
				sum[j] += float64(term.Float32())
				size = max(size, float64(term.Float32()), -float64(term.Float32()))
			}
		}
		got := numbers(t, r.Gradients[0])
		for j := range sum {
			// Sums of groups of uses may be rounded before they are added up.
			assert.InDelta(t, sum[j], got[j], 3*uses/8*size/256, "element %d", j)
		}
	})
}

func TestSumRoundsOnce(t *testing.T) {
	// In bfloat16, 256 + 1 is 256, and 256 + 1 + 1 is 258.
	eachMachine(t, func(t *testing.T, kind machine.Kind) {
		g := gorgonia.NewGraph()
		in := inputNodes(g, []operand{
			{"x", op.BFloat16, []int{1, 1, 1}, []float64{1}},
			{"a", tensor.Float32, []int{1, 1}, []float64{256}},
			{"b", tensor.Float32, []int{1, 1}, []float64{1}},
			{"c", tensor.Float32, []int{1, 1}, []float64{1}},
		})
		var loss *gorgonia.Node
		for _, h := range in[1:] {
			y, err := op.Pre(in[0], h)
			require.NoError(t, err)
			wide, err := op.Cast(y, tensor.Float32)
			require.NoError(t, err)
			s, err := gorgonia.Sum(wide)
			require.NoError(t, err)
			if loss == nil {
				loss = s
			} else {
				loss, err = gorgonia.Add(loss, s)
				require.NoError(t, err)
			}
		}
		r := run(t, kind, machine.Program{Graph: g, Loss: loss, Inputs: in[:1]})
		assert.Equal(t, []float64{258}, numbers(t, r.Gradients[0]))
	})
}
