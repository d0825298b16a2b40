//go:build !amd64

package normalize

// The kernels by tier, of which there is one.
var (
	single = [...]kernels[float32]{portable[float32]()}
	double = [...]kernels[float64]{portable[float64]()}
)
