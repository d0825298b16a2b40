package rmsnorm

import (
	"sync"
	"unsafe"

	"github.com/mhc-go/mhc/dtype"
)

// purpose is what a buffer is for. Buffers of one purpose have much the same
// length in every call of a program.
type purpose int

const (
	tiles     purpose = iota // of tokens, one for each goroutine
	products                 // x phi for some tokens
	packed                   // phi
	partials                 // sums of dphi
	upstreams                // dmix and what comes of it
	purposes
)

// buffers keeps buffers between calls, one pool for each size of number: memory
// that is fresh each time takes a tenth of a call's time to be cleared.
var buffers [purposes][unsafe.Sizeof(float64(0)) + 1]sync.Pool

// borrow returns a buffer of n numbers, which hold anything.
func borrow[A dtype.Float](p purpose, n int) []A {
	if b, ok := buffers[p][unsafe.Sizeof(*new(A))].Get().(*[]A); ok && cap(*b) >= n {
		return (*b)[:n]
	}
	return make([]A, n)
}

// giveBack ends the use of a buffer that borrow has returned.
func giveBack[A dtype.Float](p purpose, b []A) { buffers[p][unsafe.Sizeof(*new(A))].Put(&b) }
