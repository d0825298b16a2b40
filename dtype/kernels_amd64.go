//go:build !purego

package dtype

import (
	"unsafe"

	"github.com/mhc-go/mhc/internal/tier"
)

// Each of these converts the leading elements, as many as the active tier has
// vectors for, and returns how many. The slices are of one length.

func widenBFloat16(dst []float32, src []BFloat16) int {
	switch tier.Active {
	case tier.AVX512:
		widenBFloat16AVX512(dst, bits(src))
	case tier.AVX2:
		widenBFloat16AVX2(dst, bits(src))
	default:
		return 0
	}
	return whole(len(src))
}

func widenFloat16(dst []float32, src []Float16) int {
	switch tier.Active {
	case tier.AVX512:
		widenFloat16AVX512(dst, bits(src))
	case tier.AVX2:
		widenFloat16AVX2(dst, bits(src))
	default:
		return 0
	}
	return whole(len(src))
}

func narrowBFloat16(dst []BFloat16, src []float32) int {
	switch tier.Active {
	case tier.AVX512:
		narrowBFloat16AVX512(bits(dst), src)
	case tier.AVX2:
		narrowBFloat16AVX2(bits(dst), src)
	default:
		return 0
	}
	return whole(len(src))
}

func narrowFloat16(dst []Float16, src []float32) int {
	switch tier.Active {
	case tier.AVX512:
		narrowFloat16AVX512(bits(dst), src)
	case tier.AVX2:
		narrowFloat16AVX2(bits(dst), src)
	default:
		return 0
	}
	return whole(len(src))
}

// whole is the part of n that a kernel, which converts 16 elements a step, does.
func whole(n int) int { return n / 16 * 16 }

func bits[S ~uint16](s []S) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}
