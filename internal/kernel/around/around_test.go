package around

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"

	"github.com/mhc-go/mhc/dtype"
)

func TestWorth(t *testing.T) {
	assert.False(t, Worth(make([]float32, 4<<20-1)))
	assert.True(t, Worth(make([]float32, 4<<20)))
	assert.False(t, Worth(make([]dtype.BFloat16, 4<<20)))
	assert.False(t, Worth[float32](nil))
}

func TestAligned(t *testing.T) {
	room := make([]float32, 64)
	first := 0
	for uintptr(unsafe.Pointer(&room[first]))%line != 0 {
		first++
	}
	assert.True(t, Aligned(room[first:], 16))
	assert.True(t, Aligned(room[first:], 0))
	assert.False(t, Aligned(room[first:], 24))
	assert.False(t, Aligned(room[first+1:], 16))
	Fence()
}
