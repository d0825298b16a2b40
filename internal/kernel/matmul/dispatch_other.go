//go:build !amd64 || purego

package matmul

import "github.com/mhc-go/mhc/internal/tier"

var (
	f32 = [...]Kernels[float32]{tier.Go: portable[float32]()}
	f64 = [...]Kernels[float64]{tier.Go: portable[float64]()}
)
