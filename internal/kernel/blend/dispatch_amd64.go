//go:build !purego

package blend

import (
	"unsafe"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/tier"
)

func combineFloat32(dst [][]float32, h []float32, src [][]float32, n int, around bool) {
	switch tier.Active {
	case tier.AVX512:
		combineF32AVX512(dst, h, src, n, around)
	case tier.AVX2:
		combineF32AVX2(dst, h, src, n, around)
	default:
		combineGo(dst, h, src, n)
	}
}

func dotsFloat32(d []float32, g, x [][]float32, n int) {
	switch tier.Active {
	case tier.AVX512:
		dotsF32AVX512(d, g, x, n)
	case tier.AVX2:
		dotsF32AVX2(d, g, x, n)
	default:
		dotsGo(d, g, x, n)
	}
}

func combineFloat64(dst [][]float64, h []float64, src [][]float64, n int, around bool) {
	switch tier.Active {
	case tier.AVX512:
		combineF64AVX512(dst, h, src, n, around)
	case tier.AVX2:
		combineF64AVX2(dst, h, src, n, around)
	default:
		combineGo(dst, h, src, n)
	}
}

func dotsFloat64(d []float64, g, x [][]float64, n int) {
	switch tier.Active {
	case tier.AVX512:
		dotsF64AVX512(d, g, x, n)
	case tier.AVX2:
		dotsF64AVX2(d, g, x, n)
	default:
		dotsGo(d, g, x, n)
	}
}

// The kernels of 16-bit rows do as many leading channels as the active tier has
// vectors for, and return how many.

func combineBFloat16(dst [][]dtype.BFloat16, h []float32, src [][]dtype.BFloat16, n int, around bool) int {
	n = n / 16 * 16
	switch tier.Active {
	case tier.AVX512:
		combineBF16AVX512(bits(dst), h, bits(src), n, around)
	case tier.AVX2:
		combineBF16AVX2(bits(dst), h, bits(src), n, around)
	default:
		return 0
	}
	return n
}

func dotsBFloat16(d []float32, g, x [][]dtype.BFloat16, n int) int {
	n = n / 16 * 16
	switch tier.Active {
	case tier.AVX512:
		dotsBF16AVX512(d, bits(g), bits(x), n)
	case tier.AVX2:
		dotsBF16AVX2(d, bits(g), bits(x), n)
	default:
		return 0
	}
	return n
}

func combineFloat16(dst [][]dtype.Float16, h []float32, src [][]dtype.Float16, n int, around bool) int {
	n = n / 16 * 16
	switch tier.Active {
	case tier.AVX512:
		combineF16AVX512(bits(dst), h, bits(src), n, around)
	case tier.AVX2:
		combineF16AVX2(bits(dst), h, bits(src), n, around)
	default:
		return 0
	}
	return n
}

func dotsFloat16(d []float32, g, x [][]dtype.Float16, n int) int {
	n = n / 16 * 16
	switch tier.Active {
	case tier.AVX512:
		dotsF16AVX512(d, bits(g), bits(x), n)
	case tier.AVX2:
		dotsF16AVX2(d, bits(g), bits(x), n)
	default:
		return 0
	}
	return n
}

func bits[S ~uint16](rows [][]S) [][]uint16 { return *(*[][]uint16)(unsafe.Pointer(&rows)) }
