package bench_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/internal/bench"
	"github.com/mhc-go/mhc/internal/device"
	"github.com/mhc-go/mhc/op"
)

// quick measures in one short round.
func quick(t *testing.T, peers bool) bench.Options {
	cpu, err := device.Open("cpu")
	require.NoError(t, err)
	return bench.Options{Device: cpu, Rounds: 1, RoundTime: time.Microsecond, Peers: peers}
}

// Both sides compute the same: outputs and gradients of every operator, in every
// convention.
func TestPeersAgree(t *testing.T) {
	for _, preset := range mhc.Presets {
		for _, dtype := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			for _, name := range bench.Names() {
				t.Run(fmt.Sprintf("%v/%v/%s", preset, dtype, name), func(t *testing.T) {
					p := bench.Problem{Config: preset.Config(3), Channels: 8, Tokens: 5, Dtype: dtype, Seed: 3}
					results, err := bench.Measure(name, p, quick(t, true))
					require.NoError(t, err)
					require.Len(t, results, 6)
					want := 1e-13
					if dtype == tensor.Float32 {
						want = 2e-5
					}
					for i, r := range results {
						assert.Equal(t, []string{"forward", "backward", "full"}[i%3], r.Pass)
						assert.Equal(t, []string{"mhc", "gorgonia"}[i/3], r.By)
						assert.LessOrEqual(t, r.Difference, want)
					}
					assert.Positive(t, results[2].Ratio)
				})
			}
		}
	}
}

// The floor's bytes: inputs and outputs once, and backward the inputs, their
// gradients and the upstream gradients.
func TestBytes(t *testing.T) {
	p := bench.Problem{Config: mhc.Liger.Config(4), Channels: 16, Tokens: 8, Dtype: op.BFloat16}
	results, err := bench.Measure("coeffs", p, quick(t, false))
	require.NoError(t, err)
	require.Len(t, results, 3)
	in := int64(2*8*64 + 2*64*24 + 4*24 + 4*3)
	out := int64(4 * 8 * 24)
	assert.Equal(t, in+out, results[0].Bytes)
	assert.Equal(t, 2*in+out, results[1].Bytes)
	assert.Equal(t, 3*in+2*out, results[2].Bytes)
	for _, r := range results {
		assert.Equal(t, "bfloat16", r.Dtype)
		assert.Equal(t, "cpu", r.Device)
		assert.Equal(t, []int{8, 4, 16, 20}, []int{r.N, r.Streams, r.Channels, r.T})
		assert.Zero(t, r.Ratio)
	}
	p.WidePhi = true
	wide, err := bench.Measure("coeffs", p, quick(t, false))
	require.NoError(t, err)
	assert.Equal(t, results[0].Bytes+2*64*24, wide[0].Bytes)
	assert.True(t, wide[2].WidePhi)
	linear, err := bench.Measure("streams", p, quick(t, false))
	require.NoError(t, err)
	assert.Equal(t, []int64{5 * 2 * 8 * 16, 5 * 2 * 8 * 16}, []int64{linear[0].Bytes, linear[1].Bytes}, "one stream in, four out")
	assert.Equal(t, results[0].Allocated+in, results[0].Peak)
	assert.Equal(t, results[2].Allocated+in+out, results[2].Peak)
	assert.GreaterOrEqual(t, results[2].Allocated, in, "the gradients at least")
}

// Forward and backward of the coefficients hold little beside x, phi and their
// gradients at a time.
func TestPeakOfTheCoefficients(t *testing.T) {
	for _, dtype := range []tensor.Dtype{tensor.Float32, tensor.Float64, op.BFloat16} {
		p := bench.Problem{Config: mhc.Liger.Config(4), Channels: 256, Tokens: 512, Dtype: dtype}
		results, err := bench.Measure("coeffs", p, quick(t, false))
		require.NoError(t, err)
		x, phi := int64(512*4*256)*int64(dtype.Size()), int64(4*256*24)*int64(dtype.Size())
		limit := 3 * 2 * (x + phi)
		assert.Less(t, results[2].Peak, limit, "%v", dtype)
		assert.Greater(t, results[2].Peak, 2*x+2*phi)
	}
}

func TestRefusals(t *testing.T) {
	good := bench.Problem{Config: mhc.Liger.Config(2), Channels: 4, Tokens: 4, Dtype: tensor.Float32}
	for want, measure := range map[string]func() ([]bench.Result, error){
		`operator "softmax", want one of [coeffs`: func() ([]bench.Result, error) {
			return bench.Measure("softmax", good, quick(t, false))
		},
		"channels C is 0 and tokens N 4": func() ([]bench.Result, error) {
			p := good
			p.Channels = 0
			return bench.Measure("pre", p, quick(t, false))
		},
		"Streams is 0": func() ([]bench.Result, error) {
			p := good
			p.Config.Streams = 0
			return bench.Measure("pre", p, quick(t, false))
		},
		"dtype is int, want float32": func() ([]bench.Result, error) {
			p := good
			p.Dtype = tensor.Int
			return bench.Measure("pre", p, quick(t, false))
		},
		"0 rounds": func() ([]bench.Result, error) {
			o := quick(t, false)
			o.Rounds = 0
			return bench.Measure("pre", good, o)
		},
		"gorgonia's operators compute in float32 and float64": func() ([]bench.Result, error) {
			p := good
			p.Dtype = op.Float16
			return bench.Measure("pre", p, quick(t, true))
		},
	} {
		_, err := measure()
		assert.ErrorContains(t, err, want)
	}
}

// On a GPU, operators run on device memory and give what the CPU gives.
func TestOnAGPU(t *testing.T) {
	gpu, err := device.Open("cuda")
	if err != nil {
		if os.Getenv("MHC_REQUIRE_GPU") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	defer gpu.Close()
	by := "events"
	if strings.HasPrefix(bench.NewEnvironment(gpu, "", 0).Profiler, "CUPTI") {
		by = "cupti"
	}
	for _, preset := range mhc.Presets {
		for _, dtype := range []tensor.Dtype{tensor.Float32, op.BFloat16, op.Float16} {
			for _, name := range bench.Names() {
				p := bench.Problem{Config: preset.Config(4), Channels: 40, Tokens: 33, Dtype: dtype, Seed: 3, WidePhi: preset == mhc.DeepSeekV4}
				results, err := bench.Measure(name, p, bench.Options{Device: gpu, Rounds: 1})
				require.NoError(t, err)
				require.Len(t, results, 3)
				for i, r := range results {
					assert.Equal(t, []string{"forward", "backward", "full"}[i], r.Pass)
					assert.Equal(t, "cuda", r.Device)
					assert.Positive(t, r.P50)
					assert.Positive(t, r.Kernels)
					assert.Equal(t, by, r.KernelsBy)
					assert.Positive(t, r.Floor)
				}
				assert.Equal(t, results[0].Launches+results[1].Launches, results[2].Launches)
				assert.Empty(t, results[0].Errors)
				require.NotEmpty(t, results[2].Errors)
				bound := 2e-5
				if dtype != tensor.Float32 {
					bound = 4e-3 // the rounding of 16-bit results
				}
				for tensor, e := range results[2].Errors {
					assert.LessOrEqual(t, e, bound, "%v %v %s: %s", preset, dtype, name, tensor)
				}
			}
		}
	}
}
