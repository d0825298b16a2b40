// Package around says which results kernels write past the caches: those that
// are so large that their beginning would have left the caches before anybody
// reads it. Writing them so saves reading them from memory first.
package around

import (
	"unsafe"

	"github.com/mhc-go/mhc/dtype"
)

const (
	// least is the size in bytes of a result that is written past the caches. With
	// what it was made of it fills a last-level cache of 32 MiB, and whoever reads it
	// next loses less than was gained; at half the size it is the other way round.
	least = 16 << 20
	// line is the size in bytes of what is written whole.
	line = 64
)

// Worth says that a result does not stay in the caches.
func Worth[S dtype.Storage](result []S) bool { return bytes(len(result), result) >= least }

// Aligned says that rows begin where cache lines do: the first of rows that lie
// stride numbers apart, if there are several.
func Aligned[S dtype.Storage](first []S, stride int) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(first)))%line == 0 && bytes(stride, first)%line == 0
}

func bytes[S dtype.Storage](n int, _ []S) int { return n * int(unsafe.Sizeof(*new(S))) }

// Fence makes what this goroutine has written past the caches certain to be seen
// by others that it synchronises with.
func Fence() { fence() }
