package op

import (
	"reflect"

	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/dtype"
)

// The 16-bit dtypes: storage for the streams x and for phi. Gorgonia's built-in
// operators cannot compute with them, so they begin and end at [Cast].
var (
	BFloat16 = tensor.Dtype{Type: reflect.TypeFor[dtype.BFloat16]()}
	Float16  = tensor.Dtype{Type: reflect.TypeFor[dtype.Float16]()}
)

// arithmetic is the dtype in which streams of dtype t are computed with, and of
// the coefficients.
func arithmetic(t tensor.Dtype) tensor.Dtype {
	if t == tensor.Float64 {
		return t
	}
	return tensor.Float32
}
