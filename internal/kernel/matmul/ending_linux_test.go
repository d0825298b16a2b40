package matmul

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/dtype"
)

// ending copies numbers to memory that ends with them: a kernel that reads or
// writes past them faults.
func ending[A dtype.Storage](t *testing.T, s []A) []A {
	t.Helper()
	size := len(s) * int(unsafe.Sizeof(*new(A)))
	page := syscall.Getpagesize()
	room := (size + page - 1) / page * page
	memory, err := syscall.Mmap(-1, 0, room+page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, syscall.Munmap(memory)) })
	require.NoError(t, syscall.Mprotect(memory[room:], syscall.PROT_NONE))
	to := unsafe.Slice((*A)(unsafe.Pointer(&memory[room-size])), len(s))
	copy(to, s)
	return to
}
