// Package scratch keeps the working memory of calls for later ones, until the
// garbage collector takes it: memory that is fresh each time is cleared, and its
// pages are mapped, each time.
package scratch

import (
	"sync"
	"unsafe"

	"github.com/mhc-go/mhc/dtype"
)

// Buffers keeps buffers of one purpose, so that they have much the same length in
// every call of a program. The zero value is ready.
type Buffers struct {
	bySize [unsafe.Sizeof(float64(0)) + 1]sync.Pool
}

// Borrow returns a buffer of n numbers, which hold anything.
func Borrow[A dtype.Float](b *Buffers, n int) *[]A {
	s := Take[[]A](&b.bySize[unsafe.Sizeof(*new(A))])
	*s = Grow(*s, n)
	return s
}

// GiveBack ends the use of a buffer that Borrow has returned.
func GiveBack[A dtype.Float](b *Buffers, s *[]A) { b.bySize[unsafe.Sizeof(*new(A))].Put(s) }

// Take returns a value that was put into a pool, or, where it has none of type V,
// a new one.
func Take[V any](p *sync.Pool) *V {
	if v, ok := p.Get().(*V); ok {
		return v
	}
	return new(V)
}

// Grow returns a slice of n elements, which hold anything: s where it has room.
func Grow[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}
