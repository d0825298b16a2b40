package cuda

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"sync"

	"github.com/mhc-go/mhc/cuda/driver"
)

// MemoryStats counts the device memory of an engine, in bytes.
type MemoryStats struct {
	InUse  int64 // held by buffers, streams and calls under way
	Cached int64 // kept for the next call
	Peak   int64 // the most that was InUse at a time
}

// pool keeps freed device memory by size, so that a repeated call allocates
// nothing. Its methods want a current context, except stats.
type pool struct {
	drv driver.Driver

	mu     sync.Mutex
	cached map[int64][]driver.Pointer // by block size
	sizes  map[driver.Pointer]int64   // of the blocks in use
	count  MemoryStats
}

func newPool(drv driver.Driver) *pool {
	return &pool{drv: drv, cached: map[int64][]driver.Pointer{}, sizes: map[driver.Pointer]int64{}}
}

// blockSize rounds bytes up to one of eight sizes an octave, 512 at least: at
// most an eighth is lost, and calls of nearly the same size share blocks.
func blockSize(bytes int64) int64 {
	const smallest = 512
	if bytes <= smallest {
		return smallest
	}
	step := int64(1) << (bits.Len64(uint64(bytes-1)) - 4)
	if bytes > math.MaxInt64-step {
		return bytes // more than any device has
	}
	return (bytes + step - 1) / step * step
}

// get takes a block of at least bytes. Where the device has no more memory it
// frees what is cached and tries again, once.
func (p *pool) get(bytes int64) (driver.Pointer, error) {
	size := blockSize(bytes)
	p.mu.Lock()
	defer p.mu.Unlock()
	ptr, err := p.take(size)
	if errors.Is(err, driver.OutOfMemory) && p.count.Cached > 0 {
		if err := p.trim(); err != nil {
			return 0, err
		}
		ptr, err = p.take(size)
	}
	if errors.Is(err, driver.OutOfMemory) {
		free, total, _ := p.drv.MemInfo()
		return 0, fmt.Errorf("cuda: cannot allocate %d bytes: this engine uses %d, and %d of the device's %d are free: %w",
			size, p.count.InUse, free, total, err)
	}
	if err != nil {
		return 0, fmt.Errorf("cuda: cannot allocate %d bytes: %w", size, err)
	}
	p.sizes[ptr] = size
	p.count.InUse += size
	p.count.Peak = max(p.count.Peak, p.count.InUse)
	return ptr, nil
}

func (p *pool) take(size int64) (driver.Pointer, error) {
	if blocks := p.cached[size]; len(blocks) > 0 {
		p.cached[size] = blocks[:len(blocks)-1]
		p.count.Cached -= size
		return blocks[len(blocks)-1], nil
	}
	return p.drv.Alloc(size)
}

// put gives a block back. Work on it must be complete. After close it does
// nothing.
func (p *pool) put(ptr driver.Pointer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	size, ok := p.sizes[ptr]
	if !ok {
		return
	}
	delete(p.sizes, ptr)
	p.cached[size] = append(p.cached[size], ptr)
	p.count.InUse -= size
	p.count.Cached += size
}

// trim frees every cached block.
func (p *pool) trim() error {
	var first error
	for size, blocks := range p.cached {
		for _, ptr := range blocks {
			if err := p.drv.Free(ptr); err != nil && first == nil {
				first = failed("free device memory", err)
			}
		}
		delete(p.cached, size)
	}
	p.count.Cached = 0
	return first
}

// close frees every block, in use or not.
func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ptr, size := range p.sizes {
		p.cached[size] = append(p.cached[size], ptr)
	}
	clear(p.sizes)
	p.count.InUse = 0
	return p.trim()
}

func (p *pool) stats() MemoryStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count
}
