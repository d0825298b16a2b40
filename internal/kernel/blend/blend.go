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
	"github.com/mhc-go/mhc/internal/kernel/around"
)

//go:generate go run -C ../../../_asm ./blend -pkg blend -out ../internal/kernel/blend/blend_amd64.s -stubs ../internal/kernel/blend/stubs_amd64.go

// strip is the number of channels of 16-bit rows that are widened at once where
// there is no kernel for them.
const strip = 64

// Blender computes with rows of type S in type A, which is float64 where S is,
// else float32. The zero value is ready; one goroutine may use it at a time.
type Blender[S dtype.Storage, A dtype.Float] struct {
	// Around lets Combine write past the caches, where it can: for results so
	// large that their beginning would have left the caches before anybody reads
	// it. It saves reading them from memory first. What was written is certain to
	// be seen by others after Fence.
	Around bool

	numbers []A
	rows    [][]A
}

// Combine sets the rows of dst to combinations of the rows of src, with the
// weights h [len(dst), len(src)], row-major. All rows have one length; src has a
// row or more, none of which overlaps a row of dst.
func (b *Blender[S, A]) Combine(dst [][]S, h []A, src [][]S) {
	n := rowLength(dst, src)
	h = h[:len(dst)*len(src)]
	past := b.Around && aligned(dst)
	done := 0
	switch dst := any(dst).(type) {
	case [][]A:
		combine(dst, h, any(src).([][]A), n, past)
		return
	case [][]dtype.BFloat16:
		done = combineBFloat16(dst, any(h).([]float32), any(src).([][]dtype.BFloat16), n, past)
	case [][]dtype.Float16:
		done = combineFloat16(dst, any(h).([]float32), any(src).([][]dtype.Float16), n, past)
	}
	for ; done < n; done += strip {
		m := min(strip, n-done)
		to, from := b.wide(len(dst), len(src), m)
		load(from, src, done)
		combine(to, h, from, m, false)
		for o, row := range to {
			dtype.Narrow(dst[o][done:], row)
		}
	}
}

// Dots adds to d [len(g), len(x)], row-major, the scalar products of the rows of
// g with the rows of x, of which there are one or more. All rows have one length.
func (b *Blender[S, A]) Dots(d []A, g, x [][]S) {
	n := rowLength(g, x)
	d = d[:len(g)*len(x)]
	done := 0
	switch g := any(g).(type) {
	case [][]A:
		dots(d, g, any(x).([][]A), n)
		return
	case [][]dtype.BFloat16:
		done = dotsBFloat16(any(d).([]float32), g, any(x).([][]dtype.BFloat16), n)
	case [][]dtype.Float16:
		done = dotsFloat16(any(d).([]float32), g, any(x).([][]dtype.Float16), n)
	}
	for ; done < n; done += strip {
		m := min(strip, n-done)
		left, right := b.wide(len(g), len(x), m)
		load(left, g, done)
		load(right, x, done)
		dots(d, left, right, m)
	}
}

// wide is room for two lists of rows of m numbers, a strip at most.
func (b *Blender[S, A]) wide(left, right, m int) (l, r [][]A) {
	count := left + right
	if len(b.rows) < count {
		b.rows, b.numbers = make([][]A, count), make([]A, count*strip)
	}
	for i := range count {
		b.rows[i] = b.numbers[i*strip:][:m]
	}
	return b.rows[:left], b.rows[left:count]
}

// load widens a strip of the rows of src, from channel c on.
func load[S dtype.Storage, A dtype.Float](dst [][]A, src [][]S, c int) {
	for i, row := range dst {
		dtype.Widen(row, src[i][c:])
	}
}

func combine[A dtype.Float](dst [][]A, h []A, src [][]A, n int, around bool) {
	switch dst := any(dst).(type) {
	case [][]float32:
		combineFloat32(dst, any(h).([]float32), any(src).([][]float32), n, around)
	case [][]float64:
		combineFloat64(dst, any(h).([]float64), any(src).([][]float64), n, around)
	}
}

func dots[A dtype.Float](d []A, g, x [][]A, n int) {
	switch d := any(d).(type) {
	case []float32:
		dotsFloat32(d, any(g).([][]float32), any(x).([][]float32), n)
	case []float64:
		dotsFloat64(d, any(g).([][]float64), any(x).([][]float64), n)
	}
}

// Fence completes what Combine has written past the caches.
func (b *Blender[S, A]) Fence() {
	if b.Around {
		around.Fence()
	}
}

func aligned[S dtype.Storage](rows [][]S) bool {
	for _, row := range rows {
		if !around.Aligned(row, 0) {
			return false
		}
	}
	return true
}

// rowLength is the length of all the rows. It panics where they differ: a kernel
// must not read or write past one.
func rowLength[S dtype.Storage](a, b [][]S) int {
	n := len(b[0])
	for _, rows := range [2][][]S{a, b} {
		for _, row := range rows {
			if len(row) != n {
				panic(fmt.Sprintf("blend: rows of %d and of %d numbers", n, len(row)))
			}
		}
	}
	return n
}
