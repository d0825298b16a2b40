//go:build !purego

package matmul

import (
	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/tier"
)

//go:generate go run -C ../../../_asm ./matmul -pkg matmul -out ../internal/kernel/matmul/matmul_amd64.s -stubs ../internal/kernel/matmul/stubs_amd64.go

var (
	f32 = [...]Kernels[float32]{
		tier.Go: portable[float32](),
		tier.AVX2: {
			dotF32AVX2, squaresF32AVX2, outerF32AVX2, expandF32AVX2, nil, addF32AVX2,
			loadF32AVX2, loadBF16AVX2, loadF16AVX2, transposeF32AVX2,
		},
		tier.AVX512: {
			dotF32AVX512, squaresF32AVX512, outerF32AVX512, expandF32AVX512, dotSquaresF32AVX512, addF32AVX512,
			loadF32AVX512, loadBF16AVX512, loadF16AVX512, transposeF32AVX2,
		},
	}
	f64 = [...]Kernels[float64]{
		tier.Go: portable[float64](),
		tier.AVX2: {
			dotF64AVX2, squaresF64AVX2, outerF64AVX2, expandF64AVX2, nil, addF64AVX2,
			loadF64AVX2, loadBitsGo[float64, dtype.BFloat16], loadBitsGo[float64, dtype.Float16], transposeF64AVX2,
		},
		tier.AVX512: {
			dotF64AVX512, squaresF64AVX512, outerF64AVX512, expandF64AVX512, dotSquaresF64AVX512, addF64AVX512,
			loadF64AVX512, loadBitsGo[float64, dtype.BFloat16], loadBitsGo[float64, dtype.Float16], transposeF64AVX2,
		},
	}
)
