// Package dtype names the element types of the mHC operators.
//
// float32 and float64 are computed with as they are. [BFloat16] and
// [float16.Float16] are storage: an operator widens them to float32, computes
// there, and rounds once on the way out (round to nearest, ties to even).
package dtype

import "github.com/x448/float16"

// Float is a type that the operators compute in.
type Float interface{ float32 | float64 }

// Storage is a type that the big tensors (streams, phi) may be stored in.
type Storage interface {
	Float | BFloat16 | float16.Float16
}

// Float16 is IEEE 754 binary16.
type Float16 = float16.Float16

// Widen converts src to dst element by element. The lengths must agree; the
// conversion is exact unless float64 is narrowed to float32.
func Widen[A Float, S Storage](dst []A, src []S) {
	dst = dst[:len(src)]
	switch src := any(src).(type) {
	case []float32:
		for i, v := range src {
			dst[i] = A(v)
		}
	case []float64:
		for i, v := range src {
			dst[i] = A(v)
		}
	case []BFloat16:
		for i, v := range src {
			dst[i] = A(v.Float32())
		}
	case []Float16:
		for i, v := range src {
			dst[i] = A(v.Float32())
		}
	}
}

// Narrow converts src to dst element by element, rounding to nearest even. The
// lengths must agree.
func Narrow[S Storage, A Float](dst []S, src []A) {
	dst = dst[:len(src)]
	switch dst := any(dst).(type) {
	case []float32:
		for i, v := range src {
			dst[i] = float32(v)
		}
	case []float64:
		for i, v := range src {
			dst[i] = float64(v)
		}
	case []BFloat16:
		for i, v := range src {
			dst[i] = BFloat16FromFloat32(float32(v))
		}
	case []Float16:
		for i, v := range src {
			dst[i] = float16.Fromfloat32(float32(v))
		}
	}
}
