package sinkhorn_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/internal/tier/tiertest"
	"github.com/mhc-go/mhc/sinkhorn"
)

// BenchmarkSinkhorn reports nanoseconds a token of float32 matrices, T = 20.
func BenchmarkSinkhorn(b *testing.B) {
	const tokens = 2048
	cfg := conventions[0]
	for _, n := range []int{2, 4, 8, 16} {
		logits := normal[float32](rand.New(rand.NewPCG(1, 1)), tokens*n*n, 1)
		result := make([]float32, len(logits))
		for name, run := range map[string]func() error{
			"Forward":  func() error { return sinkhorn.Forward(result, logits, n, cfg) },
			"Backward": func() error { return sinkhorn.Backward(result, logits, logits, n, cfg) },
		} {
			b.Run(fmt.Sprintf("%s/n=%d", name, n), func(b *testing.B) {
				tiertest.Each(b, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						require.NoError(b, run())
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*tokens), "ns/token")
				})
			})
		}
	}
}
