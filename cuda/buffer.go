package cuda

import (
	"fmt"
	"sync/atomic"

	"github.com/mhc-go/mhc/cuda/driver"
	"github.com/mhc-go/mhc/cuda/plan"
)

// Buffer is device memory from an engine's pool, at a multiple of 256 bytes. Its
// contents are arbitrary at first.
type Buffer struct {
	e     *Engine
	ptr   driver.Pointer
	bytes int64
	freed atomic.Bool
}

// NewBuffer takes bytes of device memory; a buffer of none has an address too.
// Free it, or close the engine.
func (e *Engine) NewBuffer(bytes int64) (*Buffer, error) {
	if bytes < 0 {
		return nil, fmt.Errorf("cuda: a buffer of %d bytes, want 0 or more", bytes)
	}
	b := &Buffer{e: e, bytes: bytes}
	err := e.do(func() (err error) {
		b.ptr, err = e.pool.get(max(bytes, 1))
		return err
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Ptr is the buffer's device address.
func (b *Buffer) Ptr() plan.Ptr { return plan.Ptr(b.ptr) }

// Len is the buffer's size in bytes.
func (b *Buffer) Len() int64 { return b.bytes }

// Free gives the memory back for later use. The work that uses it must be done.
// A second Free does nothing.
func (b *Buffer) Free() {
	if !b.freed.Swap(true) {
		b.e.pool.put(b.ptr)
	}
}
