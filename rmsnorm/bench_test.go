package rmsnorm

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas32"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/kernel/matmul"
	"github.com/mhc-go/mhc/internal/parallel"
	"github.com/mhc-go/mhc/internal/tier/tiertest"
)

// The sizes of one layer: tokens, n*C and n*n+2n for n = 4.
var benchDims = []Dims{{Tokens: 512, K: 1024, M: 24}, {Tokens: 2048, K: 4096, M: 24}}

func eachSize(b *testing.B, f func(b *testing.B, d Dims)) {
	for _, d := range benchDims {
		b.Run(fmt.Sprintf("%dx%dx%d", d.Tokens, d.K, d.M), func(b *testing.B) { f(b, d) })
	}
}

// timed runs f, and reports what it does a second: products number how often
// [N,K] x [K,M] is computed, bytes what must be read and written at least.
func timed(b *testing.B, d Dims, products, bytes int, f func()) {
	f() // touches the pages of the results
	b.ReportAllocs()
	for b.Loop() {
		f()
	}
	s := b.Elapsed().Seconds() / float64(b.N)
	b.ReportMetric(float64(products*2*d.Tokens*d.K*d.M)/s/1e9, "GFLOP/s")
	b.ReportMetric(float64(bytes)/s/1e9, "GB/s")
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(s*1e6, "µs/op")
}

// values holds random inputs for a benchmark and room for its results.
type values[S, P dtype.Storage] struct {
	x, dx        []S
	phi, dphi    []P
	mix, r, dmix []float32
}

func newValues[S, P dtype.Storage](d Dims) values[S, P] {
	rng := rand.New(rand.NewPCG(1, 2))
	v := values[S, P]{
		make([]S, d.Tokens*d.K), make([]S, d.Tokens*d.K), make([]P, d.K*d.M), make([]P, d.K*d.M),
		make([]float32, d.Tokens*d.M), make([]float32, d.Tokens), make([]float32, d.Tokens*d.M),
	}
	dtype.Narrow(v.x, normal(rng, len(v.x), 1))
	dtype.Narrow(v.phi, normal(rng, len(v.phi), 0.02))
	dtype.Narrow(v.dmix, normal(rng, len(v.dmix), 1))
	return v
}

func benchForward[S, P dtype.Storage](b *testing.B, d Dims, size int) {
	v := newValues[S, P](d)
	timed(b, d, 1, size*d.Tokens*d.K, func() {
		require.NoError(b, Forward(v.mix, v.r, v.x, v.phi, d, 1e-6))
	})
}

func benchBackward[S, P dtype.Storage](b *testing.B, d Dims, size int) {
	v := newValues[S, P](d)
	require.NoError(b, Forward(v.mix, v.r, v.x, v.phi, d, 1e-6))
	timed(b, d, 2, 2*size*d.Tokens*d.K, func() {
		require.NoError(b, Backward(v.dx, v.dphi, v.x, v.phi, v.mix, v.r, v.dmix, d))
	})
}

func BenchmarkForward(b *testing.B) {
	eachSize(b, func(b *testing.B, d Dims) {
		b.Run("float32", func(b *testing.B) {
			tiertest.Each(b, func(b *testing.B) { benchForward[float32, float32](b, d, 4) })
		})
		b.Run("bfloat16", func(b *testing.B) { benchForward[dtype.BFloat16, dtype.BFloat16](b, d, 2) })
		b.Run("gonum product alone", func(b *testing.B) {
			v := newValues[float32, float32](d)
			x, phi, mix := matrix(v.x, d.Tokens, d.K), matrix(v.phi, d.K, d.M), matrix(v.mix, d.Tokens, d.M)
			timed(b, d, 1, 4*len(v.x), func() { blas32.Gemm(blas.NoTrans, blas.NoTrans, 1, x, phi, 0, mix) })
		})
		b.Run("read alone", func(b *testing.B) {
			v := newValues[float32, float32](d)
			l := newLayout[float32](Dims{Tokens: d.Tokens, K: d.K, M: 1})
			timed(b, Dims{}, 0, 4*len(v.x), func() { read(&l, v.x) })
		})
	})
}

func BenchmarkBackward(b *testing.B) {
	eachSize(b, func(b *testing.B, d Dims) {
		b.Run("float32", func(b *testing.B) {
			tiertest.Each(b, func(b *testing.B) { benchBackward[float32, float32](b, d, 4) })
		})
		b.Run("bfloat16", func(b *testing.B) { benchBackward[dtype.BFloat16, dtype.BFloat16](b, d, 2) })
		b.Run("gonum products alone", func(b *testing.B) {
			v := newValues[float32, float32](d)
			x, phi, z := matrix(v.x, d.Tokens, d.K), matrix(v.phi, d.K, d.M), matrix(v.dmix, d.Tokens, d.M)
			dx, dphi := matrix(v.dx, d.Tokens, d.K), matrix(v.dphi, d.K, d.M)
			timed(b, d, 2, 8*len(v.x), func() {
				blas32.Gemm(blas.NoTrans, blas.Trans, 1, z, phi, 0, dx)
				blas32.Gemm(blas.Trans, blas.NoTrans, 1, x, z, 0, dphi)
			})
		})
	})
}

func matrix(s []float32, rows, cols int) blas32.General {
	return blas32.General{Rows: rows, Cols: cols, Stride: cols, Data: s}
}

// read sums the squares of x on every processor, as fast as memory gives it.
func read(l *layout[float32], x []float32) {
	parallel.Blocks(l.Tokens, 32, func(_, lo, hi int) {
		tile, one, square := make([]float32, l.K), []float32{1}, []float32{0}
		for t := lo; t < hi; t++ {
			matmul.Load(l.Kernels, tile, l.K, x[t*l.K:], l.K, one, square, 1, l.K)
		}
	})
}
