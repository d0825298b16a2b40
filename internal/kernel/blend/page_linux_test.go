package blend

import (
	"os"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/tier/tiertest"
)

// Rows that end, or begin, where memory ends: a read past one ends the test
// program.
func TestKernelsReadOnlyTheirRows(t *testing.T) {
	tiertest.Each(t, func(t *testing.T) {
		t.Run("float32", testPage[float32])
		t.Run("float64", testPage[float64])
	})
}

func testPage[T dtype.Float](t *testing.T) {
	page := os.Getpagesize()
	memory, err := syscall.Mmap(-1, 0, 3*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	require.NoError(t, err)
	defer func() { require.NoError(t, syscall.Munmap(memory)) }()
	require.NoError(t, syscall.Mprotect(memory[:page], syscall.PROT_NONE))
	require.NoError(t, syscall.Mprotect(memory[2*page:], syscall.PROT_NONE))
	inner := unsafe.Slice((*T)(unsafe.Pointer(&memory[page])), page/int(unsafe.Sizeof(T(0))))
	for n := 1; n <= 150; n++ {
		for _, row := range [][]T{inner[:n], inner[len(inner)-n:]} {
			for i := range row {
				row[i] = 1
			}
			dst, d := make([]T, n), make([]T, 9)
			Combine([][]T{dst}, []T{1, 1, 1}, [][]T{row, row, row})
			Dots(d, [][]T{row, row, row}, [][]T{row, row, row})
			require.Equal(t, T(3), dst[n-1])
			require.Equal(t, T(n), d[8])
			Combine([][]T{row}, []T{2}, [][]T{dst})
			require.Equal(t, T(6), row[0])
		}
	}
}
