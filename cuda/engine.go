package cuda

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/cuda/driver"
	"github.com/mhc-go/mhc/cuda/kernels"
	"github.com/mhc-go/mhc/cuda/plan"
)

// ErrClosed is the error of every use of an engine, or of a stream, event or
// buffer of it, after Close.
var ErrClosed = errors.New("cuda: the engine is closed")

// The environment variables of this package.
const (
	debugVariable   = "MHC_CUDA_DEBUG"
	requireVariable = "MHC_REQUIRE_GPU"
)

// hostStreams is the number of calls on host tensors that an engine works on at
// a time; more wait. The copies of one hide behind the kernels of another.
const hostStreams = 4

// Engine runs the mHC operators on one GPU. It implements op.Engine for
// gorgonia.WithEngine, and embeds the standard engine for all other operators.
// Any goroutine may call its methods.
type Engine struct {
	tensor.StdEng

	drv    driver.Driver
	ctx    driver.Context
	module driver.Module
	info   Info
	debug  bool
	pool   *pool
	idle   chan *Stream // of hostStreams, for calls on host tensors
	chunk  int64        // bytes of a chunk of the streams' rings

	life    sync.RWMutex // read-locked by every call, locked by Close
	closed  bool
	lost    atomic.Pointer[error] // what made the context unusable
	mu      sync.Mutex            // guards the rest
	funcs   map[string]*function
	streams map[*Stream]struct{}
	events  map[*Event]struct{}
}

type options struct{ device int }

// Option is a setting of New.
type Option func(*options)

// Device chooses the device by its index in Devices. The default is 0.
func Device(index int) Option { return func(o *options) { o.device = index } }

// New makes an engine on a GPU. It returns an error that says why where there is
// no driver, no device, none of that index, one older than sm_80, or where the
// kernels do not load. Close frees what the engine holds.
func New(opts ...Option) (*Engine, error) {
	drv, err := driver.Open()
	if err != nil {
		return nil, fmt.Errorf("cuda: no usable GPU: %w", err)
	}
	return newEngine(drv, kernels.Fatbin, opts...)
}

func newEngine(drv driver.Driver, image []byte, opts ...Option) (*Engine, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	count, err := drv.DeviceCount()
	if err != nil {
		return nil, fmt.Errorf("cuda: no usable GPU: %w", err)
	}
	if o.device < 0 || o.device >= count {
		return nil, fmt.Errorf("cuda: device is %d, want one of %d, from 0", o.device, count)
	}
	info, err := describe(drv, o.device)
	if err != nil {
		return nil, err
	}
	if err := info.Supported(); err != nil {
		return nil, err
	}
	e := &Engine{
		drv: drv, info: info, debug: os.Getenv(debugVariable) == "1",
		pool: newPool(drv), idle: make(chan *Stream, hostStreams), chunk: chunkBytes,
		funcs: map[string]*function{}, streams: map[*Stream]struct{}{}, events: map[*Event]struct{}{},
	}
	for range hostStreams {
		e.idle <- &Stream{e: e}
	}
	if e.ctx, err = drv.Retain(o.device); err != nil {
		return nil, fmt.Errorf("cuda: cannot use device %d, %s: %w", o.device, info.Name, err)
	}
	err = e.do(func() (err error) {
		e.module, err = drv.LoadModule(image)
		return err
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cuda: the %d bytes of embedded kernels do not load on device %d, %s: %w",
			len(image), o.device, info.Name, err), e.Close())
	}
	return e, nil
}

// Info describes the engine's device.
func (e *Engine) Info() Info { return e.info }

// Memory counts the device memory that the engine holds.
func (e *Engine) Memory() MemoryStats { return e.pool.stats() }

// Trim frees the device memory that is kept for later calls.
func (e *Engine) Trim() error {
	return e.do(func() error {
		e.pool.mu.Lock()
		defer e.pool.mu.Unlock()
		return e.pool.trim()
	})
}

// DeviceMemory is the free and the total memory of the device, in bytes, over
// all processes.
func (e *Engine) DeviceMemory() (free, total int64, err error) {
	err = e.do(func() (err error) {
		free, total, err = e.drv.MemInfo()
		return failed("read how much memory is free", err)
	})
	return free, total, err
}

// Close waits for the calls under way, then frees all memory, streams, events and
// kernels, those of buffers, streams and events that were not freed too. Later calls
// return ErrClosed; a second Close does nothing. After a lost device there is
// nothing left to free, and Close returns nil.
func (e *Engine) Close() error {
	e.life.Lock()
	defer e.life.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	err := e.inContext(func() error {
		var errs []error
		for s := range e.streams {
			errs = append(errs, s.destroy())
		}
		for v := range e.events {
			errs = append(errs, v.destroy())
		}
		errs = append(errs, e.pool.close())
		if e.module != 0 {
			errs = append(errs, e.drv.UnloadModule(e.module))
		}
		return errors.Join(errs...)
	})
	err = errors.Join(err, e.drv.Release(e.info.Index))
	if err == nil || e.lost.Load() != nil {
		return nil
	}
	return fmt.Errorf("cuda: close: %w", err)
}

// do calls f on a thread that has the engine's context, unless the engine is
// closed or its device lost.
func (e *Engine) do(f func() error) error {
	e.life.RLock()
	defer e.life.RUnlock()
	if e.closed {
		return ErrClosed
	}
	if lost := e.lost.Load(); lost != nil {
		return *lost
	}
	err := e.inContext(f)
	var code driver.Code
	if errors.As(err, &code) && code.Lost() {
		lost := fmt.Errorf("cuda: device %d, %s, is lost to this process: %w", e.info.Index, e.info.Name, err)
		e.lost.CompareAndSwap(nil, &lost)
		return lost
	}
	return err
}

// inContext calls f with the engine's context current, and restores the one
// that the thread had before. A context belongs to a thread and goroutines
// wander, so the goroutine is locked to its thread meanwhile.
func (e *Engine) inContext(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := e.drv.Push(e.ctx); err != nil {
		return fmt.Errorf("cuda: %w", err)
	}
	err := f()
	if popErr := e.drv.Pop(); err == nil && popErr != nil {
		return fmt.Errorf("cuda: %w", popErr)
	}
	return err
}

// failed is the error of a call that was to do something, if there is one.
func failed(to string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cuda: cannot %s: %w", to, err)
}

// function is a kernel, and the dynamic shared memory that it may use.
type function struct {
	handle driver.Function
	shared int
}

// defaultShared is what a kernel may use without asking.
const defaultShared = 48 << 10

// function finds a kernel that may use shared bytes of dynamic shared memory.
func (e *Engine) function(name string, shared int) (driver.Function, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f, ok := e.funcs[name]
	if !ok {
		handle, err := e.drv.GetFunction(e.module, name)
		if err != nil {
			return 0, err
		}
		f = &function{handle, defaultShared}
		e.funcs[name] = f
	}
	if shared > f.shared {
		if err := e.drv.SetMaxShared(f.handle, shared); err != nil {
			return 0, err
		}
		f.shared = shared
	}
	return f.handle, nil
}

// launch queues one kernel of op on s.
func (e *Engine) launch(l plan.Launch, op Operator, s driver.Stream) error {
	f, err := e.function(l.Name, int(l.Shared))
	if err == nil {
		err = e.drv.LaunchKernel(f, driver.Launch{Grid: dim(l.Grid), Block: dim(l.Block), Shared: int(l.Shared), Args: l.Args}, s)
	}
	if err == nil && e.debug {
		err = e.drv.SyncStream(s)
	}
	if err != nil {
		return fmt.Errorf("cuda: kernel %s, grid %v, block %v, %d bytes shared, of %T %+v: %w",
			l.Name, dim(l.Grid), dim(l.Block), l.Shared, op, op, err)
	}
	return nil
}

func dim(d plan.Dim) [3]int { return [3]int{int(d.X), int(d.Y), int(d.Z)} }
