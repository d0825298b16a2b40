package cuda

import (
	"errors"
	"fmt"
	"sync"

	"github.com/mhc-go/mhc/cuda/driver"
	"github.com/mhc-go/mhc/cuda/plan"
)

// Operator is an operator on device memory: a pointer to one of package plan's
// structs, such as [plan.CoeffsForward], with its sizes and device addresses.
type Operator interface {
	// Check reports the first size or setting that is wrong.
	Check() error
	// Workspace is the scratch memory that the operator needs, in bytes.
	Workspace(lim plan.Limits) (int64, error)
	// Launches are its kernels, in order, with the scratch memory at ws.
	Launches(lim plan.Limits, ws plan.Ptr) ([]plan.Launch, error)
}

// Stream queues work, which the device runs in order and at the same time as
// that of other streams. It owns the scratch memory of its operators. Any
// goroutine may call its methods.
type Stream struct {
	e      *Engine
	mu     sync.Mutex // held by every method
	handle driver.Stream
	work   driver.Pointer // scratch memory
	size   int64          // of work, in bytes
	ring   [ringLength]chunk
}

// NewStream makes a stream. Close it, or the engine.
func (e *Engine) NewStream() (*Stream, error) {
	s := &Stream{e: e}
	if err := e.do(s.open); err != nil {
		return nil, err
	}
	return s, nil
}

// Close waits for the queued work and frees the stream. A second Close does
// nothing.
func (s *Stream) Close() error {
	err := s.e.do(func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.handle == 0 {
			return nil
		}
		s.e.mu.Lock()
		delete(s.e.streams, s)
		s.e.mu.Unlock()
		return s.destroy()
	})
	if errors.Is(err, ErrClosed) {
		return nil // which has closed the stream
	}
	return err
}

// Run queues an operator and returns before it is done. An error of its kernels
// is returned by a later call that waits.
func (s *Stream) Run(op Operator) error {
	if op == nil {
		return errNoOperator
	}
	return s.with(func() error {
		bytes, err := op.Workspace(s.e.info.Limits)
		if err != nil {
			return err
		}
		if err := s.reserve(bytes); err != nil {
			return err
		}
		return s.queue(op, s.work, s.e.launch)
	})
}

// Synchronize waits until the queued work is done.
func (s *Stream) Synchronize() error { return s.with(s.sync) }

// Write queues a copy of src to device memory. When it returns, src may be
// changed.
func (s *Stream) Write(dst plan.Ptr, src []byte) error {
	return s.with(func() error {
		return s.upload(driver.Pointer(dst), []segment{{0, src}}, int64(len(src)))
	})
}

// Read copies device memory to dst once the queued work is done, and waits for
// that.
func (s *Stream) Read(dst []byte, src plan.Ptr) error {
	return s.with(func() error {
		return s.download([]segment{{0, dst}}, driver.Pointer(src), int64(len(dst)))
	})
}

// Fill queues the writing of count 32-bit words of one value.
func (s *Stream) Fill(dst plan.Ptr, value uint32, count int64) error {
	return s.with(func() error {
		return failed("fill device memory", s.e.drv.Fill32(driver.Pointer(dst), value, count, s.handle))
	})
}

// Copy queues a copy from device memory to device memory.
func (s *Stream) Copy(dst, src plan.Ptr, bytes int64) error {
	return s.with(func() error {
		return failed("copy on the device", s.e.drv.CopyOnDevice(driver.Pointer(dst), driver.Pointer(src), bytes, s.handle))
	})
}

var (
	errStreamClosed = errors.New("cuda: the stream is closed")
	errNoOperator   = errors.New("cuda: the operator is nil, want one of package plan")
)

// with calls f with the engine's context current and the stream its own.
func (s *Stream) with(f func() error) error {
	return s.e.do(func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.handle == 0 {
			return errStreamClosed
		}
		return f()
	})
}

// open creates the driver's stream, unless it is there.
func (s *Stream) open() (err error) {
	if s.handle != 0 {
		return nil
	}
	if s.handle, err = s.e.drv.NewStream(); err != nil {
		return failed("create a stream", err)
	}
	s.e.mu.Lock()
	defer s.e.mu.Unlock()
	s.e.streams[s] = struct{}{}
	return nil
}

// destroy frees what the stream holds, after its work.
func (s *Stream) destroy() error {
	errs := []error{s.sync()}
	for i := range s.ring {
		errs = append(errs, s.ring[i].free(s.e.drv))
	}
	if s.work != 0 {
		s.e.pool.put(s.work)
		s.work, s.size = 0, 0
	}
	errs = append(errs, failed("free a stream", s.e.drv.DestroyStream(s.handle)))
	s.handle = 0
	return errors.Join(errs...)
}

// reserve grows the scratch memory to at least bytes. What is queued may still
// use the old one, so it is given back after a wait.
func (s *Stream) reserve(bytes int64) error {
	if bytes <= s.size {
		return nil
	}
	if s.work != 0 {
		if err := s.sync(); err != nil {
			return err
		}
		s.e.pool.put(s.work)
		s.work, s.size = 0, 0
	}
	work, err := s.e.pool.get(bytes)
	if err != nil {
		return err
	}
	s.work, s.size = work, blockSize(bytes)
	return nil
}

// queue launches the kernels of op.
func (s *Stream) queue(op Operator, work driver.Pointer, launch func(plan.Launch, Operator, driver.Stream) error) error {
	launches, err := op.Launches(s.e.info.Limits, plan.Ptr(work))
	if err != nil {
		return err
	}
	for _, l := range launches {
		if err := launch(l, op, s.handle); err != nil {
			return err
		}
	}
	return nil
}

func (s *Stream) sync() error {
	if err := s.e.drv.SyncStream(s.handle); err != nil {
		return fmt.Errorf("cuda: %w%s", err, s.e.hint())
	}
	return nil
}

// hint says how to find the kernel behind an error that a wait returned.
func (e *Engine) hint() string {
	if e.debug {
		return ""
	}
	return " (set " + debugVariable + "=1 to have the kernel named)"
}
