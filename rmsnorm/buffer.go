package rmsnorm

import (
	"sync"
	"unsafe"

	"github.com/mhc-go/mhc/dtype"
)

// buffers keeps the goroutines' buffers between calls, one pool for each size of
// number.
var buffers [unsafe.Sizeof(float64(0)) + 1]sync.Pool

// commonBuffer is at least the length of a tile, so that most buffers serve for
// most purposes.
const commonBuffer = 1 << 14

// borrow returns a buffer of n numbers, which hold anything.
func borrow[A dtype.Float](n int) []A {
	if b, ok := buffers[unsafe.Sizeof(*new(A))].Get().(*[]A); ok && cap(*b) >= n {
		return (*b)[:n]
	}
	return make([]A, n, max(n, commonBuffer))
}

func giveBack[A dtype.Float](b []A) { buffers[unsafe.Sizeof(*new(A))].Put(&b) }
