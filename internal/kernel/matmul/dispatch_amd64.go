package matmul

import "github.com/mhc-go/mhc/internal/tier"

var (
	f32 = [...]Kernels[float32]{tier.Go: portable[float32](), tier.AVX2: portable[float32](), tier.AVX512: portable[float32]()}
	f64 = [...]Kernels[float64]{tier.Go: portable[float64](), tier.AVX2: portable[float64](), tier.AVX512: portable[float64]()}
)
