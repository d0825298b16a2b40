//go:build !amd64

package exp

// The kernels by tier, of which there is one.
var (
	single = [...]Kernels[float32]{portable[float32]()}
	double = [...]Kernels[float64]{portable[float64]()}
)
