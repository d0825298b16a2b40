//go:build linux

package cuda

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mhc-go/mhc/cuda/driver"
)

func TestBlockSizeWastesAtMostAnEighth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.Int64Range(1, 1<<40).Draw(t, "bytes")
		size := blockSize(bytes)
		assert.GreaterOrEqual(t, size, bytes)
		if bytes > 512 {
			assert.LessOrEqual(t, size-bytes, bytes/8)
		}
		assert.Equal(t, size, blockSize(size), "a block's own size")
		assert.GreaterOrEqual(t, blockSize(bytes+1), size, "one byte more")
	})
	for bytes, want := range map[int64]int64{1: 512, 512: 512, 513: 576, 1000: 1024, 1024: 1024, 1025: 1152, 100 << 20: 104 << 20} {
		assert.Equal(t, want, blockSize(bytes), "%d bytes", bytes)
	}
}

func TestBuffersOfImpossibleSizesAreRefused(t *testing.T) {
	e := newFake().engine(t)
	_, err := e.NewBuffer(-1)
	require.EqualError(t, err, "cuda: a buffer of -1 bytes, want 0 or more")
	_, err = e.NewBuffer(math.MaxInt64)
	require.ErrorIs(t, err, driver.OutOfMemory)
	require.ErrorContains(t, err, "cuda: cannot allocate 9223372036854775807 bytes")
	none, err := e.NewBuffer(0)
	require.NoError(t, err)
	require.NotZero(t, none.Ptr())
	require.Zero(t, none.Len())
}

func TestPoolHandsOutEachBlockOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFake()
		f.current[threadOf(t)] = 1 // the pool leaves contexts to its callers
		p := newPool(f)
		held := map[driver.Pointer]int64{}
		var inUse, peak int64
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(held) == 0 || rapid.Bool().Draw(t, "get") {
				bytes := rapid.SampledFrom([]int64{1, 500, 600, 5000, 5100, 1 << 20}).Draw(t, "bytes")
				ptr, err := p.get(bytes)
				require.NoError(t, err)
				require.NotContains(t, held, ptr)
				held[ptr] = blockSize(bytes)
				inUse += blockSize(bytes)
				peak = max(peak, inUse)
			} else {
				for ptr, size := range held {
					p.put(ptr)
					delete(held, ptr)
					inUse -= size
					break
				}
			}
			s := p.stats()
			require.Equal(t, inUse, s.InUse)
			require.Equal(t, peak, s.Peak)
			require.Equal(t, f.used, s.InUse+s.Cached)
		}
		require.NoError(t, p.close())
		require.Zero(t, f.used)
		require.Equal(t, MemoryStats{Peak: peak}, p.stats())
		require.Empty(t, f.faults)
	})
}

func TestPoolFreesWhatItKeepsBeforeItGivesUp(t *testing.T) {
	f := newFake()
	f.capacity = 10 << 20
	e := f.engine(t)
	var kept []*Buffer
	for range 4 {
		b, err := e.NewBuffer(2 << 20)
		require.NoError(t, err)
		kept = append(kept, b)
	}
	for _, b := range kept {
		b.Free()
	}
	require.Equal(t, MemoryStats{Cached: 8 << 20, Peak: 8 << 20}, e.Memory())

	big, err := e.NewBuffer(9 << 20)
	require.NoError(t, err, "of 10 MiB, 8 are only kept")
	require.Equal(t, MemoryStats{InUse: 9 << 20, Peak: 9 << 20}, e.Memory())

	_, err = e.NewBuffer(4 << 20)
	require.EqualError(t, err, "cuda: cannot allocate 4194304 bytes: this engine uses 9437184, and 1048576 of the device's 10485760 are free: "+
		"cuMemAlloc: out of device memory (CUDA_ERROR_OUT_OF_MEMORY, 2)")
	require.ErrorIs(t, err, driver.OutOfMemory)

	big.Free()
	big.Free()
	again, err := e.NewBuffer(4 << 20)
	require.NoError(t, err, "the engine goes on after it ran out of memory")
	require.EqualValues(t, 4<<20, e.Memory().InUse)
	again.Free()
	require.NoError(t, e.Trim())
	require.Zero(t, e.Memory().Cached)
}
