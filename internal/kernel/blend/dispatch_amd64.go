package blend

import "github.com/mhc-go/mhc/internal/tier"

func combine32(dst [][]float32, h []float32, src [][]float32, n int) {
	switch tier.Active {
	case tier.AVX512:
		combineF32AVX512(dst, h, src, n)
	case tier.AVX2:
		combineF32AVX2(dst, h, src, n)
	default:
		combine(dst, h, src, n)
	}
}

func combine64(dst [][]float64, h []float64, src [][]float64, n int) {
	switch tier.Active {
	case tier.AVX512:
		combineF64AVX512(dst, h, src, n)
	case tier.AVX2:
		combineF64AVX2(dst, h, src, n)
	default:
		combine(dst, h, src, n)
	}
}

func dots32(d []float32, g, x [][]float32, n int) {
	switch tier.Active {
	case tier.AVX512:
		dotsF32AVX512(d, g, x, n)
	case tier.AVX2:
		dotsF32AVX2(d, g, x, n)
	default:
		dots(d, g, x, n)
	}
}

func dots64(d []float64, g, x [][]float64, n int) {
	switch tier.Active {
	case tier.AVX512:
		dotsF64AVX512(d, g, x, n)
	case tier.AVX2:
		dotsF64AVX2(d, g, x, n)
	default:
		dots(d, g, x, n)
	}
}
