// The fake tells threads by their id, which Linux gives.

//go:build linux

package cuda

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/mhc-go/mhc/cuda/driver"
)

// fake is a driver without a GPU. Device memory is Go memory; what is queued on
// a stream runs as late as the driver may run it, at a wait, so that host memory
// that is reused too early shows; kernels are Go functions.
type fake struct {
	mu       sync.Mutex
	major    int
	devices  int
	capacity int64 // of device memory, in bytes
	// fail, where set, is asked before the k-th call, from 1.
	fail func(k int, call string) driver.Code
	// kernel runs a launch; nil does nothing.
	kernel func(f *fake, name string, args []uint64) error

	calls    int
	called   map[string]int
	current  map[int]int // contexts pushed, by thread
	retained int
	modules  int
	used     int64
	next     driver.Pointer
	device   map[driver.Pointer][]byte
	host     map[unsafe.Pointer][]byte
	names    []string // of functions
	shared   map[driver.Function]int
	streams  map[driver.Stream]*queue
	events   map[driver.Event]mark
	handles  uintptr
	faults   []string // misuse of the driver
}

// queue is a stream: work not yet run, and the number of the next piece.
type queue struct {
	work []func() error
	done int
}

// mark is an event: the queue, and how far it must have run.
type mark struct {
	q  *queue
	at int
}

func newFake() *fake {
	return &fake{
		major: 9, devices: 1, capacity: 1 << 30, next: 1 << 40,
		called: map[string]int{}, current: map[int]int{}, device: map[driver.Pointer][]byte{}, host: map[unsafe.Pointer][]byte{},
		shared: map[driver.Function]int{}, streams: map[driver.Stream]*queue{}, events: map[driver.Event]mark{},
	}
}

// engine makes an engine on the fake, and checks at the test's end that it has
// left nothing behind.
func (f *fake) engine(t *testing.T) *Engine {
	t.Helper()
	e, err := newEngine(f, []byte("image"))
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, e.Close())
		f.requireClean(t)
	})
	return e
}

func (f *fake) requireClean(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Empty(t, f.faults, "misuse of the driver")
	require.Zero(t, f.used, "device memory")
	require.Empty(t, f.host, "page-locked memory")
	require.Empty(t, f.streams, "streams")
	require.Empty(t, f.events, "events")
	require.Zero(t, f.modules, "modules")
	require.Zero(t, f.retained, "contexts")
	for thread, n := range f.current {
		require.Zero(t, n, "contexts pushed on thread %d", thread)
	}
}

func (f *fake) count(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.called[call]
}

// enter begins a call: it holds f's lock, which the caller releases.
func (f *fake) enter(call string, context bool) error {
	f.mu.Lock()
	f.calls++
	f.called[call]++
	if context && f.current[unix.Gettid()] == 0 {
		f.faults = append(f.faults, call+" without a context")
	}
	if f.fail != nil {
		if code := f.fail(f.calls, call); code != 0 {
			return &driver.CallError{Call: call, Code: code}
		}
	}
	return nil
}

func (f *fake) DeviceCount() (int, error) {
	defer f.mu.Unlock()
	return f.devices, f.enter("cuDeviceGetCount", false)
}

func (f *fake) DeviceName(device int) (string, error) {
	defer f.mu.Unlock()
	return fmt.Sprintf("Fake %d", device), f.enter("cuDeviceGetName", false)
}

func (f *fake) DeviceMemory(int) (int64, error) {
	defer f.mu.Unlock()
	return f.capacity, f.enter("cuDeviceTotalMem", false)
}

func (f *fake) DriverVersion() (int, error) {
	defer f.mu.Unlock()
	return 12030, f.enter("cuDriverGetVersion", false)
}

func (f *fake) DeviceAttribute(_ int, a driver.Attribute) (int, error) {
	defer f.mu.Unlock()
	values := map[driver.Attribute]int{
		driver.MultiprocessorCount: 132, driver.L2CacheSize: 50 << 20, driver.ComputeCapabilityMajor: f.major,
		driver.ComputeCapabilityMinor: 5, driver.SharedMemoryPerSM: 233472, driver.SharedMemoryPerBlock: 232448,
	}
	return values[a], f.enter("cuDeviceGetAttribute", false)
}

func (f *fake) Retain(int) (driver.Context, error) {
	defer f.mu.Unlock()
	if err := f.enter("cuDevicePrimaryCtxRetain", false); err != nil {
		return 0, err
	}
	f.retained++
	return 7, nil
}

func (f *fake) Release(int) error {
	defer f.mu.Unlock()
	if err := f.enter("cuDevicePrimaryCtxRelease", false); err != nil {
		return err
	}
	f.retained--
	return nil
}

func (f *fake) Push(c driver.Context) error {
	defer f.mu.Unlock()
	if err := f.enter("cuCtxPushCurrent", false); err != nil {
		return err
	}
	if c != 7 {
		f.faults = append(f.faults, "a context that was never retained")
	}
	f.current[unix.Gettid()]++
	return nil
}

func (f *fake) Pop() error {
	defer f.mu.Unlock()
	if err := f.enter("cuCtxPopCurrent", true); err != nil {
		return err
	}
	f.current[unix.Gettid()]--
	return nil
}

func (f *fake) MemInfo() (free, total int64, err error) {
	defer f.mu.Unlock()
	return f.capacity - f.used, f.capacity, f.enter("cuMemGetInfo", true)
}

func (f *fake) Alloc(bytes int64) (driver.Pointer, error) {
	defer f.mu.Unlock()
	if err := f.enter("cuMemAlloc", true); err != nil {
		return 0, err
	}
	if f.used+bytes > f.capacity {
		return 0, &driver.CallError{Call: "cuMemAlloc", Code: driver.OutOfMemory}
	}
	p := f.next
	f.next += driver.Pointer(bytes+511) / 256 * 256
	f.used += bytes
	f.device[p] = make([]byte, bytes)
	return p, nil
}

func (f *fake) Free(p driver.Pointer) error {
	defer f.mu.Unlock()
	if err := f.enter("cuMemFree", true); err != nil {
		return err
	}
	if f.device[p] == nil {
		f.faults = append(f.faults, "free of memory that is not allocated")
	}
	f.used -= int64(len(f.device[p]))
	delete(f.device, p)
	return nil
}

// memory finds n bytes of device memory.
func (f *fake) memory(p driver.Pointer, n int64) []byte {
	for base, data := range f.device {
		if p >= base && p+driver.Pointer(n) <= base+driver.Pointer(len(data)) {
			return data[p-base:][:n]
		}
	}
	f.faults = append(f.faults, fmt.Sprintf("%d bytes at %#x are not allocated", n, p))
	return make([]byte, n)
}

func (f *fake) AllocHost(bytes int64) (unsafe.Pointer, error) {
	defer f.mu.Unlock()
	if err := f.enter("cuMemHostAlloc", true); err != nil {
		return nil, err
	}
	data := make([]byte, bytes)
	p := unsafe.Pointer(&data[0])
	f.host[p] = data
	return p, nil
}

func (f *fake) FreeHost(p unsafe.Pointer) error {
	defer f.mu.Unlock()
	if err := f.enter("cuMemFreeHost", true); err != nil {
		return err
	}
	delete(f.host, p)
	return nil
}

// later queues work; enter has been called for it.
func (f *fake) later(s driver.Stream, work func() error) error {
	q := f.streams[s]
	if q == nil {
		f.faults = append(f.faults, "work on a stream that does not exist")
		return nil
	}
	q.work = append(q.work, work)
	return nil
}

// runTo runs a queue up to the given number of pieces.
func (f *fake) runTo(q *queue, at int) error {
	for ; q.done < at; q.done++ {
		work := q.work[q.done]
		q.work[q.done] = nil
		if err := work(); err != nil {
			q.done++
			return err
		}
	}
	return nil
}

func (f *fake) CopyToDevice(dst driver.Pointer, src unsafe.Pointer, bytes int64, s driver.Stream) error {
	defer f.mu.Unlock()
	if err := f.enter("cuMemcpyHtoDAsync", true); err != nil {
		return err
	}
	return f.later(s, func() error {
		copy(f.memory(dst, bytes), unsafe.Slice((*byte)(src), bytes))
		return nil
	})
}

func (f *fake) CopyToHost(dst unsafe.Pointer, src driver.Pointer, bytes int64, s driver.Stream) error {
	defer f.mu.Unlock()
	if err := f.enter("cuMemcpyDtoHAsync", true); err != nil {
		return err
	}
	return f.later(s, func() error {
		copy(unsafe.Slice((*byte)(dst), bytes), f.memory(src, bytes))
		return nil
	})
}

func (f *fake) CopyOnDevice(dst, src driver.Pointer, bytes int64, s driver.Stream) error {
	defer f.mu.Unlock()
	if err := f.enter("cuMemcpyDtoDAsync", true); err != nil {
		return err
	}
	return f.later(s, func() error {
		copy(f.memory(dst, bytes), f.memory(src, bytes))
		return nil
	})
}

func (f *fake) Fill32(dst driver.Pointer, value uint32, count int64, s driver.Stream) error {
	defer f.mu.Unlock()
	if err := f.enter("cuMemsetD32Async", true); err != nil {
		return err
	}
	return f.later(s, func() error {
		for i, data := int64(0), f.memory(dst, 4*count); i < count; i++ {
			*(*uint32)(unsafe.Pointer(&data[4*i])) = value
		}
		return nil
	})
}

func (f *fake) LoadModule(image []byte) (driver.Module, error) {
	defer f.mu.Unlock()
	if err := f.enter("cuModuleLoadData", true); err != nil {
		return 0, err
	}
	if string(image) != "image" {
		return 0, &driver.CallError{Call: "cuModuleLoadData", Code: driver.InvalidImage}
	}
	f.modules++
	return 1, nil
}

func (f *fake) UnloadModule(driver.Module) error {
	defer f.mu.Unlock()
	if err := f.enter("cuModuleUnload", true); err != nil {
		return err
	}
	f.modules--
	return nil
}

func (f *fake) GetFunction(_ driver.Module, name string) (driver.Function, error) {
	defer f.mu.Unlock()
	if err := f.enter("cuModuleGetFunction", true); err != nil {
		return 0, err
	}
	f.names = append(f.names, name)
	f.shared[driver.Function(len(f.names))] = defaultShared
	return driver.Function(len(f.names)), nil
}

func (f *fake) SetMaxShared(fn driver.Function, bytes int) error {
	defer f.mu.Unlock()
	if err := f.enter("cuFuncSetAttribute", true); err != nil {
		return err
	}
	f.shared[fn] = bytes
	return nil
}

func (f *fake) LaunchKernel(fn driver.Function, l driver.Launch, s driver.Stream) error {
	defer f.mu.Unlock()
	if err := f.enter("cuLaunchKernel", true); err != nil {
		return err
	}
	if l.Shared > f.shared[fn] {
		f.faults = append(f.faults, fmt.Sprintf("%s asks for %d bytes of shared memory, may use %d", f.names[fn-1], l.Shared, f.shared[fn]))
	}
	if min(l.Grid[0], l.Grid[1], l.Grid[2], l.Block[0], l.Block[1], l.Block[2]) < 1 {
		f.faults = append(f.faults, fmt.Sprintf("%s has grid %v and block %v", f.names[fn-1], l.Grid, l.Block))
	}
	return f.later(s, func() error {
		if f.kernel == nil {
			return nil
		}
		return f.kernel(f, f.names[fn-1], l.Args)
	})
}

func (f *fake) NewStream() (driver.Stream, error) {
	defer f.mu.Unlock()
	if err := f.enter("cuStreamCreate", true); err != nil {
		return 0, err
	}
	f.handles++
	f.streams[driver.Stream(f.handles)] = &queue{}
	return driver.Stream(f.handles), nil
}

func (f *fake) DestroyStream(s driver.Stream) error {
	defer f.mu.Unlock()
	if err := f.enter("cuStreamDestroy", true); err != nil {
		return err
	}
	delete(f.streams, s)
	return nil
}

func (f *fake) SyncStream(s driver.Stream) error {
	defer f.mu.Unlock()
	if err := f.enter("cuStreamSynchronize", true); err != nil {
		return err
	}
	if f.streams[s] == nil {
		f.faults = append(f.faults, "wait for a stream that does not exist")
		return nil
	}
	return f.runTo(f.streams[s], len(f.streams[s].work))
}

func (f *fake) NewEvent() (driver.Event, error) {
	defer f.mu.Unlock()
	if err := f.enter("cuEventCreate", true); err != nil {
		return 0, err
	}
	f.handles++
	f.events[driver.Event(f.handles)] = mark{}
	return driver.Event(f.handles), nil
}

func (f *fake) DestroyEvent(e driver.Event) error {
	defer f.mu.Unlock()
	if err := f.enter("cuEventDestroy", true); err != nil {
		return err
	}
	delete(f.events, e)
	return nil
}

func (f *fake) Record(e driver.Event, s driver.Stream) error {
	defer f.mu.Unlock()
	if err := f.enter("cuEventRecord", true); err != nil {
		return err
	}
	f.events[e] = mark{f.streams[s], len(f.streams[s].work)}
	return nil
}

func (f *fake) SyncEvent(e driver.Event) error {
	defer f.mu.Unlock()
	if err := f.enter("cuEventSynchronize", true); err != nil {
		return err
	}
	return f.runTo(f.events[e].q, f.events[e].at)
}

// Elapsed counts a millisecond for each piece of work.
func (f *fake) Elapsed(start, end driver.Event) (float64, error) {
	defer f.mu.Unlock()
	if err := f.enter("cuEventElapsedTime", true); err != nil {
		return 0, err
	}
	return float64(f.events[end].at - f.events[start].at), nil
}

func requireCode(t *testing.T, err error, code driver.Code) {
	t.Helper()
	var got driver.Code
	require.True(t, errors.As(err, &got), "%v", err)
	require.Equal(t, code, got)
}
