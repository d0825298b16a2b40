//go:build !amd64 || purego

package blend

import "github.com/mhc-go/mhc/dtype"

func combineFloat32(dst [][]float32, h []float32, src [][]float32, n int, _ bool) {
	combineGo(dst, h, src, n)
}

func combineFloat64(dst [][]float64, h []float64, src [][]float64, n int, _ bool) {
	combineGo(dst, h, src, n)
}

func dotsFloat32(d []float32, g, x [][]float32, n int) { dotsGo(d, g, x, n) }

func dotsFloat64(d []float64, g, x [][]float64, n int) { dotsGo(d, g, x, n) }

func combineBFloat16(_ [][]dtype.BFloat16, _ []float32, _ [][]dtype.BFloat16, _ int, _ bool) int {
	return 0
}

func combineFloat16(_ [][]dtype.Float16, _ []float32, _ [][]dtype.Float16, _ int, _ bool) int {
	return 0
}

func dotsBFloat16(_ []float32, _, _ [][]dtype.BFloat16, _ int) int { return 0 }

func dotsFloat16(_ []float32, _, _ [][]dtype.Float16, _ int) int { return 0 }
