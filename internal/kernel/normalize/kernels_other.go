//go:build !amd64 || purego

package normalize

// The kernels by tier, of which there is one.
var (
	singles = [...]kernels[float32]{portable[float32]()}
	doubles = [...]kernels[float64]{portable[float64]()}
)
