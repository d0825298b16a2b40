package dtype

import (
	"math"

	"github.com/x448/float16"
)

//go:generate go run -C ../_asm ./convert -pkg dtype -out ../dtype/convert_amd64.s -stubs ../dtype/convert_stubs_amd64.go

// stretch is the number of elements that are converted at once: a kernel in
// assembly cannot be preempted, so it is not handed a whole tensor.
const stretch = 1 << 15

// Widen converts src to dst element by element, the shorter length of the two,
// and returns that length, as copy does. The conversion is exact, but for float64
// to float32, which rounds to nearest even. The slices must not overlap.
func Widen[A Float, S Storage](dst []A, src []S) int {
	n := min(len(dst), len(src))
	for lo := 0; lo < n; lo += stretch {
		hi := min(n, lo+stretch)
		widen(dst[lo:hi], src[lo:hi])
	}
	return n
}

// Narrow converts src to dst element by element, the shorter length of the two,
// and returns that length, as copy does. Each number is rounded once, to nearest,
// ties to even; one past dst's largest becomes an infinity, and a NaN stays a
// NaN. The slices must not overlap.
func Narrow[S Storage, A Float](dst []S, src []A) int {
	n := min(len(dst), len(src))
	for lo := 0; lo < n; lo += stretch {
		hi := min(n, lo+stretch)
		narrow(dst[lo:hi], src[lo:hi])
	}
	return n
}

func widen[A Float, S Storage](dst []A, src []S) {
	switch src := any(src).(type) {
	case []float32:
		convert(dst, src)
	case []float64:
		convert(dst, src)
	case []BFloat16:
		done := 0
		if dst, ok := any(dst).([]float32); ok {
			done = widenBFloat16(dst, src)
		}
		for i, v := range src[done:] {
			dst[done+i] = A(v.Float32())
		}
	case []Float16:
		done := 0
		if dst, ok := any(dst).([]float32); ok {
			done = widenFloat16(dst, src)
		}
		for i, v := range src[done:] {
			dst[done+i] = A(v.Float32())
		}
	}
}

func narrow[S Storage, A Float](dst []S, src []A) {
	switch dst := any(dst).(type) {
	case []float32:
		convert(dst, src)
	case []float64:
		convert(dst, src)
	case []BFloat16:
		switch src := any(src).(type) {
		case []float32:
			done := narrowBFloat16(dst, src)
			for i, v := range src[done:] {
				dst[done+i] = BFloat16FromFloat32(v)
			}
		case []float64:
			for i, v := range src {
				dst[i] = BFloat16FromFloat32(toOdd(v))
			}
		}
	case []Float16:
		switch src := any(src).(type) {
		case []float32:
			done := narrowFloat16(dst, src)
			for i, v := range src[done:] {
				dst[done+i] = float16.Fromfloat32(v)
			}
		case []float64:
			for i, v := range src {
				dst[i] = float16.Fromfloat32(toOdd(v))
			}
		}
	}
}

func convert[D, S Float](dst []D, src []S) {
	if src, ok := any(src).([]D); ok {
		copy(dst, src)
		return
	}
	for i, v := range src {
		dst[i] = D(v)
	}
}

// toOdd is v as a float32, rounded to odd: where v is not a float32 itself, to
// that neighbour of v whose last bit is set. Rounding the result to a type of at
// most 22 bits of fraction is then the same as rounding v to it, where rounding
// to nearest twice is not.
func toOdd(v float64) float32 {
	f := float32(v)
	if float64(f) == v || v != v {
		return f
	}
	bits := math.Float32bits(f)
	if math.Abs(float64(f)) > math.Abs(v) {
		bits--
	}
	return math.Float32frombits(bits | 1)
}
