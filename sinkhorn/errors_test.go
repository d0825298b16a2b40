package sinkhorn_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/sinkhorn"
)

func TestErrors(t *testing.T) {
	valid := conventions[0]
	for _, c := range []struct {
		want                    string
		out, logits, dlogits, n int
		change                  func(*sinkhorn.Config)
	}{
		{"sinkhorn: n is 0, want 1 to 32768", 8, 8, 8, 0, nil},
		{"sinkhorn: n is -2, want 1 to 32768", 8, 8, 8, -2, nil},
		{"sinkhorn: n is 4294967296, want 1 to 32768", 0, 0, 0, 1 << 32, nil},
		{"sinkhorn: logits has 7 numbers, want a multiple of n*n = 4", 7, 7, 7, 2, nil},
		{"sinkhorn: Start is Start(7), want row-softmax or exp", 8, 8, 8, 2, func(c *sinkhorn.Config) { c.Start = 7 }},
		{"sinkhorn: End is Axis(-1), want columns or rows", 8, 8, 8, 2, func(c *sinkhorn.Config) { c.End = -1 }},
		{"sinkhorn: Iterations is 0, want 1 or more", 8, 8, 8, 2, func(c *sinkhorn.Config) { c.Iterations = 0 }},
		{"sinkhorn: Iterations is 9223372036854775807, want 65536 or fewer", 8, 8, 8, 2, func(c *sinkhorn.Config) { c.Iterations = math.MaxInt }},
		{"sinkhorn: Eps is -1e-06, want a finite number of 0 or more", 8, 8, 8, 2, func(c *sinkhorn.Config) { c.Eps = -1e-6 }},
		{"sinkhorn: Eps is NaN, want a finite number of 0 or more", 8, 8, 8, 2, func(c *sinkhorn.Config) { c.Eps = math.NaN() }},
		{"sinkhorn: Eps is +Inf, want a finite number of 0 or more", 8, 8, 8, 2, func(c *sinkhorn.Config) { c.Eps = math.Inf(1) }},
		{"sinkhorn: out has 4 numbers, want 8 as logits", 4, 8, 8, 2, nil},
		{"sinkhorn: dlogits has 9 numbers, want 8 as logits", 8, 8, 9, 2, nil},
	} {
		cfg := valid
		if c.change != nil {
			c.change(&cfg)
		}
		out, dlogits := marked(c.out), marked(c.dlogits)
		logits := make([]float32, c.logits)
		if !strings.Contains(c.want, "dlogits") {
			assert.EqualError(t, sinkhorn.Forward(out, logits, c.n, cfg), c.want)
		}
		if !strings.Contains(c.want, " out ") {
			assert.EqualError(t, sinkhorn.Backward(dlogits, logits, logits, c.n, cfg), c.want)
		}
		assert.Equal(t, marked(c.out), out, "nothing is written")
		assert.Equal(t, marked(c.dlogits), dlogits, "nothing is written")
	}
	d := marked(8)
	assert.EqualError(t, sinkhorn.Backward(d, make([]float32, 8), make([]float32, 5), 2, valid), "sinkhorn: dout has 5 numbers, want 8 as logits")
	assert.Equal(t, marked(8), d, "nothing is written")
}

func marked(n int) []float32 {
	a := make([]float32, n)
	for i := range a {
		a[i] = 77
	}
	return a
}

func TestNoTokens(t *testing.T) {
	for _, cfg := range conventions {
		for _, n := range []int{1, 4, 1 << 15} {
			assert.NoError(t, sinkhorn.Forward(nil, []float32{}, n, cfg))
			assert.NoError(t, sinkhorn.Backward([]float64{}, nil, nil, n, cfg))
		}
	}
}

func TestNames(t *testing.T) {
	assert.Equal(t, "row-softmax exp columns rows", fmt.Sprint(sinkhorn.RowSoftmax, " ", sinkhorn.Exp, " ", sinkhorn.Columns, " ", sinkhorn.Rows))
	assert.Equal(t, []int{5, 6}, []int{sinkhorn.Config{Iterations: 3}.Steps(), sinkhorn.Config{Iterations: 3, End: sinkhorn.Rows}.Steps()})
}

// FuzzSinkhorn tries any sizes, settings and numbers: an error or a projection,
// never a panic, and no number outside of [0, 1] for finite logits.
func FuzzSinkhorn(f *testing.F) {
	f.Add(4, 2, 32, 20, 1e-6, 0, 0, float32(1), uint64(1))
	f.Add(2, 3, 12, 1, 0.0, 1, 1, float32(1e4), uint64(2))
	f.Add(0, 0, 0, 0, -1.0, 5, -5, float32(0), uint64(3))
	f.Add(math.MaxInt, 1, 1, math.MaxInt, math.NaN(), 0, 1, float32(math.NaN()), uint64(4))
	f.Fuzz(func(t *testing.T, n, tokens, length, iterations int, eps float64, start, end int, scale float32, seed uint64) {
		if length < 0 || length > 4096 || iterations > 64 && iterations < 1<<17 {
			t.Skip("too large for one try")
		}
		logits := make([]float32, length)
		for i := range logits {
			seed = seed*6364136223846793005 + 1442695040888963407
			logits[i] = scale * float32(int32(seed>>32)) / (1 << 31)
		}
		cfg := sinkhorn.Config{Start: sinkhorn.Start(start), End: sinkhorn.Axis(end), Iterations: iterations, Eps: eps}
		out, grad := make([]float32, length), make([]float32, length)
		if sinkhorn.Forward(out, logits, n, cfg) != nil {
			require.Error(t, sinkhorn.Backward(grad, logits, logits, n, cfg))
			return
		}
		require.NoError(t, sinkhorn.Backward(grad, logits, logits, n, cfg))
		for i, v := range out {
			if finite := logits[i]-logits[i] == 0; finite && scale-scale == 0 {
				require.True(t, v >= 0 && v <= 1.001, "%v of %v", v, logits)
			}
		}
	})
}
