package bench_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/internal/bench"
	"github.com/mhc-go/mhc/internal/tier"
)

func TestYardsticks(t *testing.T) {
	p := bench.Problem{Config: mhc.Liger.Config(3), Channels: 8, Tokens: 5, Dtype: tensor.Float32, Seed: 3}
	before := tier.Active
	var rows []bench.Comparison
	require.NoError(t, bench.Yardsticks(p, []int{1, 7, 3}, bench.Options{Rounds: 2, RoundTime: time.Microsecond}, func(r bench.Comparison) error {
		rows = append(rows, r)
		return nil
	}))
	require.Equal(t, before, tier.Active)
	counts, best := map[string]int{}, 0
	for _, r := range rows {
		counts[r.What+" by "+r.By+" against "+r.Against]++
		if r.What != "coefficients backward" || r.By != "graph" { // a difference of two times, which noise can turn round
			assert.Positive(t, r.Time)
		}
		assert.Positive(t, r.Yardstick)
		assert.LessOrEqual(t, r.P20, r.P50)
		assert.LessOrEqual(t, r.P50, r.P80)
		assert.Equal(t, []int{3, 20, 2}, []int{r.Streams, r.T, r.Rounds})
		switch {
		case r.Against == "the best number of tokens":
			assert.Contains(t, []int{1, 7, 3}, r.N)
			if r.Time == r.Yardstick {
				best++
				assert.Equal(t, []float64{1, 1, 1}, []float64{r.P20, r.P50, r.P80})
			}
		case r.Against == "portable code":
			assert.Equal(t, []int{8192, 0}, []int{r.N, r.Channels})
		default:
			assert.Equal(t, []int{5, 8}, []int{r.N, r.Channels})
		}
	}
	assert.Equal(t, 1, best)
	assert.Equal(t, map[string]int{
		"coefficients forward by slices against reading x":                                             2,
		"coefficients forward by graph against reading x":                                              2,
		"coefficients forward by slices against its multiplications alone":                             2,
		"coefficients backward by slices against copying x to dx":                                      2,
		"coefficients backward by graph against copying x to dx":                                       2,
		"coefficients backward by slices against its multiplications alone":                            2,
		"PostRes forward by slices against moving its bytes":                                           2,
		"PostRes forward by graph against moving its bytes":                                            2,
		"coefficients forward and backward by graph against Gorgonia's own operators":                  1,
		"coefficients forward and backward by graph without an Arena against Gorgonia's own operators": 1,
		"Sinkhorn forward and backward by slices against portable code":                                1,
		"coefficients forward and backward by slices against one worker":                               1,
		"coefficients forward and backward, a token by slices against the best number of tokens":       3,
	}, counts)
}

func TestYardsticksRefuse(t *testing.T) {
	good := bench.Problem{Config: mhc.Liger.Config(2), Channels: 4, Tokens: 4, Dtype: tensor.Float32}
	double := good
	double.Dtype = tensor.Float64
	for want, f := range map[string]func() error{
		"dtype is float64, want float32": func() error { return bench.Yardsticks(double, []int{1}, bench.Options{Rounds: 1}, nil) },
		"0 rounds, want 1 or more":       func() error { return bench.Yardsticks(good, []int{1}, bench.Options{}, nil) },
		"numbers of tokens are [0]":      func() error { return bench.Yardsticks(good, []int{0}, bench.Options{Rounds: 1}, nil) },
		"numbers of tokens are []":       func() error { return bench.Yardsticks(good, nil, bench.Options{Rounds: 1}, nil) },
	} {
		assert.ErrorContains(t, f(), want)
	}
}

// The yardstick of reading reads everything.
func TestSum(t *testing.T) {
	for _, n := range []int{0, 1, 3, 4, 4095, 4 * 4096, 4*4096 + 5, 1<<16 + 3, 3 << 16} {
		x := make([]float32, n)
		for i := range x {
			x[i] = 1
		}
		assert.Equal(t, float32(n), bench.Sum(x))
	}
}
