package scratch_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/mhc-go/mhc/internal/scratch"
)

func TestBuffers(t *testing.T) {
	var b scratch.Buffers
	f, d := scratch.Borrow[float32](&b, 3), scratch.Borrow[float64](&b, 5)
	assert.Len(t, *f, 3)
	assert.Len(t, *d, 5)
	(*f)[0], (*d)[0] = 1, 2
	scratch.GiveBack(&b, f)
	scratch.GiveBack(&b, d)
	assert.Len(t, *scratch.Borrow[float32](&b, 100), 100)
	assert.Len(t, *scratch.Borrow[float64](&b, 1), 1)
}

func TestBorrowedAgainDoesNotAllocate(t *testing.T) {
	var b scratch.Buffers
	assert.Less(t, testing.AllocsPerRun(100, func() { scratch.GiveBack(&b, scratch.Borrow[float32](&b, 1000)) }), 1.0)
}

func TestTakeOfAnotherType(t *testing.T) {
	var p sync.Pool
	p.Put(new(int))
	assert.Equal(t, "", *scratch.Take[string](&p))
}

func TestGrow(t *testing.T) {
	s := make([]int, 4, 8)
	grown := scratch.Grow(s, 8)
	assert.Len(t, grown, 8)
	assert.Same(t, &s[0], &grown[0])
	assert.Len(t, scratch.Grow(s, 9), 9)
	assert.Empty(t, scratch.Grow(s, 0))
}
