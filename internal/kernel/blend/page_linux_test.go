package blend

import (
	"os"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/dtype"
)

// Rows that end, or begin, where memory ends: a read or write past one ends the
// test program.
func TestKernelsKeepToTheirRows(t *testing.T) {
	eachType(t, testPage[float32, float32], testPage[float64, float64],
		testPage[dtype.BFloat16, float32], testPage[dtype.Float16, float32])
}

func testPage[S dtype.Storage, A dtype.Float](t *testing.T) {
	page := os.Getpagesize()
	memory, err := syscall.Mmap(-1, 0, 3*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	defer func() { require.NoError(t, syscall.Munmap(memory)) }()
	require.NoError(t, syscall.Mprotect(memory[:page], syscall.PROT_NONE))
	require.NoError(t, syscall.Mprotect(memory[2*page:], syscall.PROT_NONE))
	var b Blender[S, A]
	inner := unsafe.Slice((*S)(unsafe.Pointer(&memory[page])), page/int(unsafe.Sizeof(*new(S))))
	for n := 1; n <= 150; n++ {
		for _, row := range [][]S{inner[:n], inner[len(inner)-n:]} {
			for i := range row {
				row[i] = narrow[S](1)
			}
			dst, d := make([]S, n), make([]A, 9)
			b.Combine([][]S{dst}, []A{1, 1, 1}, [][]S{row, row, row})
			b.Dots(d, [][]S{row, row, row}, [][]S{row, row, row})
			require.Equal(t, 3.0, widen(dst[n-1]))
			require.Equal(t, A(n), d[8])
			b.Combine([][]S{row}, []A{2}, [][]S{dst})
			require.Equal(t, 6.0, widen(row[0]))
		}
	}
}
