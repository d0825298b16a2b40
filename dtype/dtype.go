// Package dtype names the element types of the mHC operators.
//
// float32 and float64 are computed with as they are. [BFloat16] and [Float16]
// are storage: an operator widens them to float32, computes there, and rounds
// once on the way out (round to nearest, ties to even).
//
//	          bits  sign  exponent  fraction   largest    smallest normal
//	BFloat16    16     1         8         7   3.39e38    1.18e-38
//	Float16     16     1         5        10   65504      6.10e-5
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
