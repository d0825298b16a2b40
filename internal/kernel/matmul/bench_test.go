package matmul

import (
	"testing"
	"unsafe"

	"github.com/mhc-go/mhc/internal/tier/tiertest"
)

// Each kernel on the tiles that rmsnorm gives it, in the cache.
func BenchmarkKernels(b *testing.B) {
	const m, w, ld, tokens = 24, 512, 528, 48
	x, phi := make([]float32, tokens*ld), make([]float32, m*ld)
	src := make([]float32, tokens*ld)
	g, c, f := make([]float32, tokens*m), make([]float32, Rows*m), make([]float32, tokens)
	report := func(b *testing.B, flops int) {
		b.ReportMetric(float64(flops)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
	}
	tiertest.Each(b, func(b *testing.B) {
		k := Of[float32]()
		b.Run("Dot", func(b *testing.B) {
			for b.Loop() {
				k.Dot(c, x, ld, phi, ld, m, w, (*byte)(unsafe.Pointer(&x[0])), 4*ld)
			}
			report(b, 2*Rows*m*w)
		})
		b.Run("DotSquares", func(b *testing.B) {
			for b.Loop() {
				k.DotSquares(c, f, x, ld, phi, ld, m, w, (*byte)(unsafe.Pointer(&x[0])), 4*ld)
			}
			report(b, 2*Rows*m*w)
		})
		b.Run("Outer", func(b *testing.B) {
			for b.Loop() {
				k.Outer(phi, ld, x, g, m, tokens, (*byte)(unsafe.Pointer(&x[0])), 4*ld)
			}
			report(b, 2*tokens*m*Strip)
		})
		b.Run("Expand", func(b *testing.B) {
			for b.Loop() {
				k.Expand(x, ld, src, f, g, phi, ld, m, tokens, false)
			}
			report(b, 2*tokens*m*Strip)
		})
		b.Run("Squares", func(b *testing.B) {
			for b.Loop() {
				k.squares(f, x, ld, Rows, w)
			}
			b.SetBytes(Rows * w * 4)
		})
		b.Run("Load", func(b *testing.B) {
			for b.Loop() {
				Load(k, x, ld, src, ld, f, f, Rows, w)
			}
			b.SetBytes(Rows * w * 4)
		})
		b.Run("Transpose", func(b *testing.B) {
			for b.Loop() {
				k.Transpose(phi, w, x, m, Strip, m)
			}
			b.SetBytes(Strip * m * 4)
		})
	})
}
