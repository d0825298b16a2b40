// Package matmul holds the inner loops of the product of tokens with a narrow
// matrix, forward and reverse. A call is one tile of the work.
//
// Token tiles are row-major with a stride of their own:
//
//	x[t*ldx+k]       token t, channel k
//
// The matrix phi is packed: cut along its K rows into blocks of w, each stored
// transposed, and padded with zeros to m columns and w rows that are multiples
// of [Cols] and [Strip]. A block of phi, and of its gradient, is
//
//	phi[j*w+k]       column j, row k of the block
//
// so that all three products run along k and waste nothing on a narrow phi.
package matmul

import (
	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/tier"
)

const (
	// Rows is the number of tokens that Dot and Expand take at a time.
	Rows = 6
	// Cols is what the number of columns of a packed matrix is a multiple of.
	Cols = 4
	// Strip is what the width of a packed block is a multiple of, and the width
	// that Outer and Expand work on.
	Strip = 64
)

// Kernels are the inner loops for one type of number, in the instruction set in
// use. They trust their arguments: a slice that is too short is read and written
// past its end.
type Kernels[A dtype.Float] struct {
	// Dot adds the products of six tokens with a block:
	//
	//	for r := range Rows {
	//		for j := range m {
	//			for k := range w {
	//				c[r*m+j] += x[r*ldx+k] * phi[j*w+k]
	//			}
	//		}
	//	}
	Dot func(c, x []A, ldx int, phi []A, m, w int, next *byte, stride int)

	// Outer adds the products of two token tiles, for one strip of a block:
	//
	//	for t := range rows {
	//		for j := range m {
	//			for k := range Strip {
	//				d[j*w+k] += g[t*m+j] * x[t*ldx+k]
	//			}
	//		}
	//	}
	Outer func(d []A, w int, x []A, ldx int, g []A, m, rows int, next *byte, stride int)

	// Expand combines one strip of a token tile with phi, rows a multiple of Rows:
	//
	//	for t := range rows {
	//		for k := range Strip {
	//			v := b[t] * x[t*ldx+k]
	//			for j := range m {
	//				v += g[t*m+j] * phi[j*w+k]
	//			}
	//			dst[t*ldd+k] = f[t] * v
	//		}
	//	}
	//
	// dst and x are the same tile, or do not overlap.
	Expand func(dst []A, ldd int, x []A, ldx int, b, f, g, phi []A, m, w, rows int)

	scale     func(dst []A, ldd int, src []A, lds int, factor, squares []A, rows, n int)
	transpose func(dst []A, ldd int, src []A, lds, rows, cols int)
}

// scaleStep and transposeStep are what the sizes of the two kernels behind a
// method are multiples of; the methods see to the rest.
const (
	scaleStep     = 16
	transposeStep = 8
)

// Scale multiplies each token by a factor and sums its squares:
//
//	for t := range rows {
//		squares[t] = 0
//		for k := range n {
//			squares[t] += src[t*lds+k] * src[t*lds+k]
//			dst[t*ldd+k] = factor[t] * src[t*lds+k]
//		}
//	}
//
// dst and src are the same tile, or do not overlap.
func (f *Kernels[A]) Scale(dst []A, ldd int, src []A, lds int, factor, squares []A, rows, n int) {
	body := n / scaleStep * scaleStep
	f.scale(dst, ldd, src, lds, factor, squares, rows, body)
	if body == n {
		return
	}
	for t := range rows {
		s := squares[t]
		for k := body; k < n; k++ {
			v := src[t*lds+k]
			s += v * v
			dst[t*ldd+k] = factor[t] * v
		}
		squares[t] = s
	}
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
	return Kernels[A]{dotGo[A], outerGo[A], expandGo[A], scaleGo[A], transposeGo[A]}
}
