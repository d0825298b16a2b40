// Package blend holds the vector kernels of package streams: the products
// between small coefficient matrices and long rows of channels. Every operation
// on residual streams is one of two.
//
//	Combine   dst[o] = sum_i h[o,i] src[i]     rows become rows
//	Dots      d[o,i] += g[o] . x[i]            rows become a matrix
//
// There are three tiers (package tier): Go, which is the reference, AVX2 and
// AVX-512. Within a tier a result's bits depend on the numbers and the length
// alone, not on where the rows lie.
package blend

import (
	"fmt"

	"github.com/mhc-go/mhc/dtype"
)

//go:generate go run -C ../../../_asm ./blend -pkg blend -out ../internal/kernel/blend/blend_amd64.s -stubs ../internal/kernel/blend/stubs_amd64.go

// Combine sets the rows of dst to combinations of the rows of src, with the
// weights h [len(dst), len(src)], row-major. All rows have one length; src has a
// row or more, none of which overlaps a row of dst.
func Combine[T dtype.Float](dst [][]T, h []T, src [][]T) {
	n := rowLength(dst, src)
	_ = h[:len(dst)*len(src)]
	switch dst := any(dst).(type) {
	case [][]float32:
		combine32(dst, any(h).([]float32), any(src).([][]float32), n)
	case [][]float64:
		combine64(dst, any(h).([]float64), any(src).([][]float64), n)
	}
}

// Dots adds to d [len(g), len(x)], row-major, the scalar products of the rows of
// g with the rows of x. All rows have one length.
func Dots[T dtype.Float](d []T, g, x [][]T) {
	n := rowLength(g, x)
	_ = d[:len(g)*len(x)]
	switch d := any(d).(type) {
	case []float32:
		dots32(d, any(g).([][]float32), any(x).([][]float32), n)
	case []float64:
		dots64(d, any(g).([][]float64), any(x).([][]float64), n)
	}
}

// rowLength is the length of all the rows. It panics where they differ: a kernel
// must not read or write past one.
func rowLength[T dtype.Float](a, b [][]T) int {
	n := len(b[0])
	for _, rows := range [2][][]T{a, b} {
		for _, row := range rows {
			if len(row) != n {
				panic(fmt.Sprintf("blend: rows of %d and of %d numbers", n, len(row)))
			}
		}
	}
	return n
}
