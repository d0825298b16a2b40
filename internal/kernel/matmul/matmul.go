// Package matmul holds the inner loops of the product of tokens with a narrow
// matrix, forward and reverse. A call is one tile of the work.
//
// A tile is a row-major matrix in a buffer with rows of ld numbers. Tiles of
// tokens have a token a row; phi, and its gradient, are cut along their K rows
// into blocks, each transposed to a tile and padded with zeros to m columns and w
// rows that are multiples of [Cols] and [Strip]:
//
//	x[t*ld+k]     token t, channel k of the block
//	phi[j*ld+k]   column j of phi, row k of the block
//
// So all three products run along k, and waste nothing on a narrow phi. An odd
// number of cache lines is a good ld: the rows then spread over the cache.
package matmul

import (
	"unsafe"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/tier"
)

const (
	// Rows is the number of tokens that Dot and Expand take at a time.
	Rows = 6
	// Cols is what the number of columns of a block is a multiple of.
	Cols = 4
	// Strip is what the width of a block is a multiple of, and the width that Outer
	// works on.
	Strip = 64
)

// Kernels are the inner loops for one type of number, in the instruction set in
// use. They trust their arguments: a slice that is too short is read and written
// past its end. Where a kernel takes next and stride, it asks the processor to
// fetch the rows of the coming tile, stride bytes apart; any address will do.
type Kernels[A dtype.Float] struct {
	// Dot adds the products of six tokens with a block:
	//
	//	for r := range Rows {
	//		for j := range m {
	//			for k := range w {
	//				c[r*m+j] += x[r*ldx+k] * phi[j*ld+k]
	//			}
	//		}
	//	}
	Dot func(c, x []A, ldx int, phi []A, ld, m, w int, next *byte, stride int)

	// squares sums the squares of tokens, n a multiple of Strip, to the same bits as
	// Load:
	//
	//	for t := range rows {
	//		dst[t] = 0
	//		for k := range n {
	//			dst[t] += src[t*lds+k] * src[t*lds+k]
	//		}
	//	}
	squares func(dst, src []A, lds, rows, n int)

	// Outer adds the products of two token tiles, for one strip of a block:
	//
	//	for t := range rows {
	//		for j := range m {
	//			for k := range Strip {
	//				d[j*ld+k] += g[t*m+j] * x[t*Strip+k]
	//			}
	//		}
	//	}
	Outer func(d []A, ld int, x, g []A, m, rows int, next *byte, stride int)

	// Expand combines a strip of tokens with that of phi, rows a multiple of Rows:
	//
	//	for t := range rows {
	//		for k := range Strip {
	//			v := b[t] * x[t*Strip+k]
	//			for j := range m {
	//				v += g[t*m+j] * phi[j*ld+k]
	//			}
	//			dst[t*ldd+k] = v
	//		}
	//	}
	//
	// With around set, dst and ldd are aligned to 64 bytes, and dst is written past
	// the caches, to be seen elsewhere after a Fence.
	Expand func(dst []A, ldd int, x, b, g, phi []A, ld, m, rows int, around bool)

	// dotSquares is Dot and squares in one, to the same bits, for Rows*Cols columns; nil
	// where there are no registers for it.
	dotSquares func(c, sums, x []A, ldx int, phi []A, ld, w int, next *byte, stride int)

	add       func(dst, src []A)
	load      func(dst []A, ldd int, src []A, lds int, factor, squares []A, rows, n int)
	loadBF16  func(dst []A, ldd int, src []uint16, lds int, factor, squares []A, rows, n int)
	loadF16   func(dst []A, ldd int, src []uint16, lds int, factor, squares []A, rows, n int)
	transpose func(dst []A, ldd int, src []A, lds, rows, cols int)
}

// step is what the length of a vector is a multiple of, and transposeStep what
// the sides of a matrix are, in the kernels behind a method; the method sees to
// the rest.
const (
	step          = 16
	transposeStep = 8
)

// DotSquares does what Dot does for six tokens, and sums their squares, to the same
// bits as Load.
func (f *Kernels[A]) DotSquares(c, sums, x []A, ldx int, phi []A, ld, m, w int, next *byte, stride int) {
	if f.dotSquares != nil && m == Rows*Cols {
		f.dotSquares(c, sums, x, ldx, phi, ld, w, next, stride)
		return
	}
	f.squares(sums, x, ldx, Rows, w)
	f.Dot(c, x, ldx, phi, ld, m, w, next, stride)
}

// Add adds a vector to another of its length:
//
//	for i := range src {
//		dst[i] += src[i]
//	}
func (f *Kernels[A]) Add(dst, src []A) {
	body := len(src) / step * step
	f.add(dst[:body], src[:body])
	addGo(dst[body:], src[body:])
}

// Load fills a tile with tokens, each multiplied by a factor, and, unless squares is
// nil, sums the squares of what it reads:
//
//	for t := range rows {
//		squares[t] = 0
//		for k := range n {
//			squares[t] += A(src[t*lds+k]) * A(src[t*lds+k])
//			dst[t*ldd+k] = factor[t] * A(src[t*lds+k])
//		}
//	}
func Load[A dtype.Float, S dtype.Storage](f *Kernels[A], dst []A, ldd int, src []S, lds int, factor, squares []A, rows, n int) {
	body := n / step * step
	switch src := any(src).(type) {
	case []A:
		f.load(dst, ldd, src, lds, factor, squares, rows, body)
	case []dtype.BFloat16:
		f.loadBF16(dst, ldd, bits(src), lds, factor, squares, rows, body)
	case []dtype.Float16:
		f.loadF16(dst, ldd, bits(src), lds, factor, squares, rows, body)
	}
	if body == n {
		return
	}
	var wide [step]A
	for t := range rows {
		var s A
		for k, v := range wide[:dtype.Widen(wide[:n-body], src[t*lds+body:])] {
			s += v * v
			dst[t*ldd+body+k] = factor[t] * v
		}
		if squares != nil {
			squares[t] += s
		}
	}
}

// bits views 16-bit numbers as what they are stored in.
func bits[S ~uint16](s []S) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(s))), len(s))
}

// Transpose writes the transpose of a matrix:
//
//	for i := range rows {
//		for j := range cols {
//			dst[j*ldd+i] = src[i*lds+j]
//		}
//	}
func (f *Kernels[A]) Transpose(dst []A, ldd int, src []A, lds, rows, cols int) {
	r, c := rows/transposeStep*transposeStep, cols/transposeStep*transposeStep
	if r == 0 || c == 0 {
		transposeGo(dst, ldd, src, lds, rows, cols)
		return
	}
	f.transpose(dst, ldd, src, lds, r, c)
	if c < cols {
		transposeGo(dst[c*ldd:], ldd, src[c:], lds, r, cols-c)
	}
	if r < rows {
		transposeGo(dst[r:], ldd, src[r*lds:], lds, rows-r, cols)
	}
}

// Of returns the kernels for A in the tier in use.
func Of[A dtype.Float]() *Kernels[A] {
	var zero A
	var f any = &f32[tier.Active]
	if _, double := any(zero).(float64); double {
		f = &f64[tier.Active]
	}
	return f.(*Kernels[A])
}

func portable[A dtype.Float]() Kernels[A] {
	return Kernels[A]{
		dotGo[A], squaresGo[A], outerGo[A], expandGo[A], nil, addGo[A],
		loadGo[A, A], loadBitsGo[A, dtype.BFloat16], loadBitsGo[A, dtype.Float16], transposeGo[A],
	}
}
