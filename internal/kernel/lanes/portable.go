package lanes

import "github.com/mhc-go/mhc/dtype"

func portable[T dtype.Float]() Kernels[T] {
	return Kernels[T]{pack: pack[T], unpack: unpack[T], mul: mul[T], affine: affine[T], accumulate: accumulate[T]}
}

// pack equals
//
//	for j := range len(dst) / 16 {
//		for l := range 16 {
//			dst[j*16+l] = src[l*stride+j]
//		}
//	}
//
// where len(dst) is a multiple of 4*16.
func pack[T dtype.Float](dst, src []T, stride int) {
	for j := range len(dst) / Width {
		d := (*[Width]T)(dst[j*Width:])
		for l := range d {
			d[l] = src[l*stride+j]
		}
	}
}

// unpack equals
//
//	for j := range len(src) / 16 {
//		for l := range 16 {
//			dst[l*stride+j] = src[j*16+l]
//		}
//	}
//
// where len(src) is a multiple of 4*16.
func unpack[T dtype.Float](dst, src []T, stride int) {
	for j := range len(src) / Width {
		for l, v := range (*[Width]T)(src[j*Width:]) {
			dst[l*stride+j] = v
		}
	}
}

// mul equals
//
//	for i := range dst {
//		dst[i] *= src[i]
//	}
//
// where len(dst) is a multiple of 16.
func mul[T dtype.Float](dst, src []T) {
	for i, v := range src[:len(dst)] {
		dst[i] *= v
	}
}

// affine equals
//
//	for i := range dst {
//		dst[i] = scale[i/16]*src[i] + shift[i/16]
//	}
//
// where len(dst) is 16*len(scale).
func affine[T dtype.Float](dst, src, scale, shift []T) {
	for j, a := range scale {
		b := shift[j]
		d, s := (*[Width]T)(dst[j*Width:]), (*[Width]T)(src[j*Width:])
		for l := range d {
			d[l] = a*s[l] + b
		}
	}
}

// accumulate equals
//
//	for i := range g {
//		sum[i] += float64(g[i])
//		dot[i] += float64(g[i]) * float64(x[i])
//	}
//
// where len(g) is a multiple of 16.
func accumulate[T dtype.Float](sum, dot []float64, g, x []T) {
	sum, dot, x = sum[:len(g)], dot[:len(g)], x[:len(g)]
	for i, v := range g {
		sum[i] += float64(v)
		dot[i] += float64(v) * float64(x[i])
	}
}
