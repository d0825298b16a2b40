//go:build !amd64 || purego

package exp

// The kernels by tier, of which there is one.
var (
	singles = [...]Kernels[float32]{portable[float32]()}
	doubles = [...]Kernels[float64]{portable[float64]()}
)
