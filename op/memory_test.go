package op_test

import (
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/op"
)

// Forward and backward of Coeffs need less than 3 times the memory of x, phi and
// their gradients, all that a run allocates counted as if none were ever freed.
func TestCoeffsMemory(t *testing.T) {
	const tokens, n, channels = 512, 4, 256
	cfg := mhc.Liger.Config(n)
	rng := randoms(10)
	for _, storage := range []tensor.Dtype{tensor.Float32, op.BFloat16} {
		t.Run(storage.String(), func(t *testing.T) {
			p := programOf(t, func(in gorgonia.Nodes) (gorgonia.Nodes, error) {
				c, err := op.Coeffs(in[0], in[1], in[2], in[3], cfg)
				if err != nil {
					return nil, err
				}
				return allUsed.nodes(c)
			}, []operand{
				random(rng, "x", storage, tokens, n, channels),
				random(rng, "phi", storage, n*channels, cfg.Width()),
				random(rng, "b", tensor.Float32, cfg.Width()),
				random(rng, "alpha", tensor.Float32, 3),
			})
			_, err := gorgonia.Grad(p.Loss, p.Inputs...)
			require.NoError(t, err)
			vm := gorgonia.NewTapeMachine(p.Graph)
			defer vm.Close()
			require.NoError(t, vm.RunAll()) // what is allocated once and kept
			vm.Reset()

			defer debug.SetGCPercent(debug.SetGCPercent(-1))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			require.NoError(t, vm.RunAll())
			runtime.ReadMemStats(&after)
			operands := uint64(tokens*n*channels+n*channels*cfg.Width()) * uint64(storage.Size())
			used := operands + after.TotalAlloc - before.TotalAlloc
			t.Logf("%d bytes of operands and results, %.2f of (x + dx + phi + dphi)", used, float64(used)/float64(2*operands))
			assert.Less(t, used, 3*2*operands)
		})
	}
}
