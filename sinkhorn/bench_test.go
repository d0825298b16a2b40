package sinkhorn_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/tier/tiertest"
	"github.com/mhc-go/mhc/sinkhorn"
)

// BenchmarkSinkhorn reports nanoseconds a token, T = 20.
func BenchmarkSinkhorn(b *testing.B) {
	const tokens = 2048
	for _, n := range []int{2, 4, 8, 16} {
		benchmark[float32](b, fmt.Sprintf("n=%d", n), tokens, n, 1, conventions[0])
	}
	benchmark[float64](b, "n=4,float64", tokens, 4, 1, conventions[0])
	benchmark[float32](b, "n=4,wide", tokens, 4, 30, conventions[1])
	benchmark[float32](b, "n=4,log", tokens, 4, 1e3, conventions[1])
}

func benchmark[T dtype.Float](b *testing.B, name string, tokens, n int, scale float64, cfg sinkhorn.Config) {
	logits := normal[T](rand.New(rand.NewPCG(1, 1)), tokens*n*n, scale)
	result := make([]T, len(logits))
	for _, c := range []struct {
		name string
		run  func() error
	}{
		{"Forward", func() error { return sinkhorn.Forward(result, logits, n, cfg) }},
		{"Backward", func() error { return sinkhorn.Backward(result, logits, logits, n, cfg) }},
	} {
		b.Run(c.name+"/"+name, func(b *testing.B) {
			tiertest.Each(b, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					require.NoError(b, c.run())
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*tokens), "ns/token")
			})
		})
	}
}
