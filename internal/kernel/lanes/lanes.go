// Package lanes computes many tokens side by side. Width tokens make a block,
// in which number k of all the tokens lies together:
//
//	row-major, a token a line          block, a number a line
//
//	a0 a1 a2 ...                       a0 b0 c0 d0 ...
//	b0 b1 b2 ...                       a1 b1 c1 d1 ...
//	c0 c1 c2 ...                       a2 b2 c2 d2 ...
//	d0 d1 d2 ...
//
// So one vector instruction does the same step for all tokens, whatever the
// number of streams is, and no token's result depends on its neighbours.
package lanes

import (
	"unsafe"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/tier"
)

// Width is the number of tokens of a block, for every type and tier.
const Width = 16

// Kernels are the operations on blocks for one type and tier.
type Kernels[T dtype.Float] struct {
	pack       func(dst, src []T, stride int)
	unpack     func(dst, src []T, stride int)
	mul        func(dst, src []T)
	affine     func(dst, src, scale, shift []T)
	accumulate func(sum, dot []float64, g, x []T)
}

// For is the kernels of the active tier.
func For[T dtype.Float]() *Kernels[T] {
	var k any = &doubles[tier.Active]
	if unsafe.Sizeof(T(0)) == 4 {
		k = &singles[tier.Active]
	}
	return k.(*Kernels[T])
}

// Pack turns the first rows rows of src, which begin stride numbers apart, to a
// block of len(dst)/Width numbers a token. Lanes past rows become zero.
func (k *Kernels[T]) Pack(dst, src []T, rows, stride int) {
	cols := len(dst) / Width
	whole := 0
	if rows == Width {
		whole = cols &^ 3
		k.pack(dst[:whole*Width], src, stride)
	}
	for j := whole; j < cols; j++ {
		d := (*[Width]T)(dst[j*Width:])
		for l := range rows {
			d[l] = src[l*stride+j]
		}
		clear(d[rows:])
	}
}

// Unpack is the way back: it turns the first rows lanes of the block src, of
// len(src)/Width numbers a token, to rows of dst that begin stride numbers apart.
func (k *Kernels[T]) Unpack(dst, src []T, rows, stride int) {
	cols := len(src) / Width
	whole := 0
	if rows == Width {
		whole = cols &^ 3
		k.unpack(dst, src[:whole*Width], stride)
	}
	for j := whole; j < cols; j++ {
		for l, v := range src[j*Width:][:rows] {
			dst[l*stride+j] = v
		}
	}
}

// Mul multiplies the block dst by src, number by number.
func (k *Kernels[T]) Mul(dst, src []T) { k.mul(dst, src[:len(dst)]) }

// Affine sets number j of every lane of dst to scale[j]*src + shift[j], for all j
// of scale. dst and src may be the same.
func (k *Kernels[T]) Affine(dst, src, scale, shift []T) {
	k.affine(dst[:len(scale)*Width], src[:len(scale)*Width], scale, shift[:len(scale)])
}

// Accumulate adds g to sum and g*x to dot, each lane by itself, in float64.
func (k *Kernels[T]) Accumulate(sum, dot []float64, g, x []T) {
	k.accumulate(sum[:len(g)], dot[:len(g)], g, x[:len(g)])
}
