package cuda

import (
	"fmt"
	"unsafe"

	"github.com/mhc-go/mhc/cuda/driver"
	"github.com/mhc-go/mhc/internal/parallel"
)

// The ring of a stream: page-locked chunks through which host memory passes on
// its way, so that the device copies one while the host fills or empties the
// next.
const (
	ringLength = 4
	chunkBytes = 4 << 20
	// copyBytes is what one goroutine copies at a time.
	copyBytes = 256 << 10
)

// chunk is page-locked memory of the engine's chunk size. Where busy, the device
// may use it until the event.
type chunk struct {
	host  unsafe.Pointer
	event driver.Event
	busy  bool
}

func (c *chunk) bytes(n int64) []byte { return unsafe.Slice((*byte)(c.host), n) }

// ready waits until the chunk is the host's to use.
func (c *chunk) ready(s *Stream) (err error) {
	if c.host == nil {
		if c.host, err = s.e.drv.AllocHost(s.e.chunk); err != nil {
			return fmt.Errorf("cuda: cannot allocate %d bytes of page-locked host memory: %w", s.e.chunk, err)
		}
	}
	if c.event == 0 {
		if c.event, err = s.e.drv.NewEvent(); err != nil {
			return failed("create an event", err)
		}
	}
	if c.busy {
		c.busy = false
		if err := s.e.drv.SyncEvent(c.event); err != nil {
			return fmt.Errorf("cuda: %w%s", err, s.e.hint())
		}
	}
	return nil
}

// queued marks the chunk as the device's until the copy just queued is done.
func (c *chunk) queued(s *Stream) error {
	if err := s.e.drv.Record(c.event, s.handle); err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	c.busy = true
	return nil
}

func (c *chunk) free(drv driver.Driver) error {
	var first error
	if c.host != nil {
		first = drv.FreeHost(c.host)
	}
	if c.event != 0 {
		if err := drv.DestroyEvent(c.event); first == nil {
			first = err
		}
	}
	*c = chunk{}
	return first
}

// segment is host memory that belongs at an offset of a range of device memory.
type segment struct {
	offset int64
	data   []byte
}

// overlap calls f with each piece of the segments that lies in the n bytes at
// offset lo of the range, and with its place there.
func overlap(segs []segment, lo, n int64, f func(data []byte, at int64)) {
	for _, g := range segs {
		from, to := max(g.offset, lo), min(g.offset+int64(len(g.data)), lo+n)
		if from < to {
			f(g.data[from-g.offset:to-g.offset], from-lo)
		}
	}
}

// upload queues a copy of the segments to a range of total bytes at dst. When
// it returns, the segments may be changed.
func (s *Stream) upload(dst driver.Pointer, segs []segment, total int64) error {
	for lo, i := int64(0), 0; lo < total; lo, i = lo+s.e.chunk, (i+1)%ringLength {
		c := &s.ring[i]
		if err := c.ready(s); err != nil {
			return err
		}
		n := min(s.e.chunk, total-lo)
		host := c.bytes(n)
		overlap(segs, lo, n, func(data []byte, at int64) { copyAll(host[at:], data) })
		if err := s.e.drv.CopyToDevice(dst+driver.Pointer(lo), c.host, n, s.handle); err != nil {
			return failed("copy to the device", err)
		}
		if err := c.queued(s); err != nil {
			return err
		}
	}
	return nil
}

// download copies a range of total bytes at src to the segments, once what is
// queued is done.
func (s *Stream) download(segs []segment, src driver.Pointer, total int64) error {
	chunks := int((total + s.e.chunk - 1) / s.e.chunk)
	span := func(i int) (lo, n int64) {
		lo = int64(i) * s.e.chunk
		return lo, min(s.e.chunk, total-lo)
	}
	for i := range chunks + ringLength {
		c := &s.ring[i%ringLength]
		if done := i - ringLength; done >= 0 && done < chunks {
			if err := c.ready(s); err != nil {
				return err
			}
			lo, n := span(done)
			host := c.bytes(n)
			overlap(segs, lo, n, func(data []byte, at int64) { copyAll(data, host[at:]) })
		}
		if i < chunks {
			if err := c.ready(s); err != nil {
				return err
			}
			lo, n := span(i)
			if err := s.e.drv.CopyToHost(c.host, src+driver.Pointer(lo), n, s.handle); err != nil {
				return failed("copy from the device", err)
			}
			if err := c.queued(s); err != nil {
				return err
			}
		}
	}
	return nil
}

// copyAll copies src to the start of dst on as many goroutines as it is worth.
func copyAll(dst, src []byte) {
	dst = dst[:min(len(src), len(dst))]
	parallel.Blocks(len(dst), copyBytes, func(_, lo, hi int) { copy(dst[lo:hi], src[lo:hi]) })
}
