// Package exp has the exponential and the sigmoid on vectors.
package exp

import (
	"math"
	"unsafe"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/tier"
)

// Kernels are the functions for one type and tier. In each of them dst is as
// long as src, a multiple of 16, and may be src itself. A NaN gives a NaN.
type Kernels[T dtype.Float] struct {
	// Exp is exp(x): 0 far below, +Inf far above, subnormal between.
	Exp func(dst, src []T)
	// Sigmoid is 1 / (1 + exp(-x)), finite for all x.
	Sigmoid func(dst, src []T)
	// Slope is the sigmoid's derivative s(x) * s(-x), which keeps its relative
	// accuracy where s(x) rounds to 1.
	Slope func(dst, src []T)
}

func portable[T dtype.Float]() Kernels[T] {
	return Kernels[T]{Exp: exp[T], Sigmoid: sigmoid[T], Slope: slope[T]}
}

// For is the kernels of the active tier.
func For[T dtype.Float]() *Kernels[T] {
	var k any = &doubles[tier.Active]
	if unsafe.Sizeof(T(0)) == 4 {
		k = &singles[tier.Active]
	}
	return k.(*Kernels[T])
}

// exp equals, within 2 units in the last place,
//
//	for i, x := range src {
//		dst[i] = exp(x)
//	}
//
// where len(src) is a multiple of 16.
func exp[T dtype.Float](dst, src []T) {
	dst = dst[:len(src)]
	for i, x := range src {
		dst[i] = T(math.Exp(float64(x)))
	}
}

// sigmoid equals, within 2 units in the last place,
//
//	for i, x := range src {
//		dst[i] = 1 / (1 + exp(-x))
//	}
//
// where len(src) is a multiple of 16.
func sigmoid[T dtype.Float](dst, src []T) {
	dst = dst[:len(src)]
	for i, x := range src {
		e := math.Exp(-math.Abs(float64(x)))
		s := 1 / (1 + e)
		if x < 0 {
			s *= e
		}
		dst[i] = T(s)
	}
}

// slope equals, within 4 units in the last place,
//
//	for i, x := range src {
//		dst[i] = exp(-abs(x)) / square(1+exp(-abs(x)))
//	}
//
// where len(src) is a multiple of 16.
func slope[T dtype.Float](dst, src []T) {
	dst = dst[:len(src)]
	for i, x := range src {
		e := T(math.Exp(-math.Abs(float64(x))))
		dst[i] = e / ((1 + e) * (1 + e))
	}
}
