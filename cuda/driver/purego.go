//go:build !mhccuda && linux && !android && (amd64 || arm64)

package driver

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Binding names the binding of this build.
const Binding = "purego"

// library is what the driver installs: the versioned name, since the other
// belongs to development packages.
const library = "libcuda.so.1"

// Open loads and initialises the driver, once a process. It returns an error
// that says why where there is no driver or no device.
func Open() (Driver, error) {
	d, err := open()
	if err != nil {
		return nil, err
	}
	return d, nil
}

var open = sync.OnceValues(func() (*pure, error) {
	lib, err := purego.Dlopen(library, purego.RTLD_NOW|purego.RTLD_GLOBAL)
	if err != nil {
		return nil, fmt.Errorf("driver: the CUDA driver is not installed: %w", err)
	}
	p := new(pure)
	for c, name := range symbols {
		if p[c], err = purego.Dlsym(lib, name); err != nil {
			return nil, fmt.Errorf("driver: %s is too old: %w", library, err)
		}
	}
	if err := p.call(cuInit, 0); err != nil {
		return nil, err
	}
	return p, nil
})

// call numbers a function of the driver.
type call int

const (
	cuInit call = iota
	cuDriverGetVersion
	cuDeviceGetCount
	cuDeviceGetName
	cuDeviceTotalMem
	cuDeviceGetAttribute
	cuDevicePrimaryCtxRetain
	cuDevicePrimaryCtxRelease
	cuCtxPushCurrent
	cuCtxPopCurrent
	cuMemGetInfo
	cuMemAlloc
	cuMemFree
	cuMemHostAlloc
	cuMemFreeHost
	cuMemcpyHtoDAsync
	cuMemcpyDtoHAsync
	cuMemcpyDtoDAsync
	cuMemsetD32Async
	cuModuleLoadData
	cuModuleUnload
	cuModuleGetFunction
	cuFuncSetAttribute
	cuLaunchKernel
	cuStreamCreate
	cuStreamDestroy
	cuStreamSynchronize
	cuEventCreate
	cuEventDestroy
	cuEventRecord
	cuEventSynchronize
	cuEventElapsedTime
	calls
)

// symbols are the functions' names in the library: cuda.h renames many to a
// later version.
var symbols = [calls]string{
	cuInit:                    "cuInit",
	cuDriverGetVersion:        "cuDriverGetVersion",
	cuDeviceGetCount:          "cuDeviceGetCount",
	cuDeviceGetName:           "cuDeviceGetName",
	cuDeviceTotalMem:          "cuDeviceTotalMem_v2",
	cuDeviceGetAttribute:      "cuDeviceGetAttribute",
	cuDevicePrimaryCtxRetain:  "cuDevicePrimaryCtxRetain",
	cuDevicePrimaryCtxRelease: "cuDevicePrimaryCtxRelease_v2",
	cuCtxPushCurrent:          "cuCtxPushCurrent_v2",
	cuCtxPopCurrent:           "cuCtxPopCurrent_v2",
	cuMemGetInfo:              "cuMemGetInfo_v2",
	cuMemAlloc:                "cuMemAlloc_v2",
	cuMemFree:                 "cuMemFree_v2",
	cuMemHostAlloc:            "cuMemHostAlloc",
	cuMemFreeHost:             "cuMemFreeHost",
	cuMemcpyHtoDAsync:         "cuMemcpyHtoDAsync_v2",
	cuMemcpyDtoHAsync:         "cuMemcpyDtoHAsync_v2",
	cuMemcpyDtoDAsync:         "cuMemcpyDtoDAsync_v2",
	cuMemsetD32Async:          "cuMemsetD32Async",
	cuModuleLoadData:          "cuModuleLoadData",
	cuModuleUnload:            "cuModuleUnload",
	cuModuleGetFunction:       "cuModuleGetFunction",
	cuFuncSetAttribute:        "cuFuncSetAttribute",
	cuLaunchKernel:            "cuLaunchKernel",
	cuStreamCreate:            "cuStreamCreate",
	cuStreamDestroy:           "cuStreamDestroy_v2",
	cuStreamSynchronize:       "cuStreamSynchronize",
	cuEventCreate:             "cuEventCreate",
	cuEventDestroy:            "cuEventDestroy_v2",
	cuEventRecord:             "cuEventRecord",
	cuEventSynchronize:        "cuEventSynchronize",
	cuEventElapsedTime:        "cuEventElapsedTime",
}

// Constants of cuda.h.
const (
	maxDynamicShared  = 8 // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
	streamNonBlocking = 1 // CU_STREAM_NON_BLOCKING
)

// pure holds the functions' addresses.
type pure [calls]uintptr

// call calls a function. The pragma makes the compiler keep alive, and on the
// heap, what an argument of the form uintptr(unsafe.Pointer(&v)) points to.
//
//go:uintptrescapes
func (p *pure) call(c call, args ...uintptr) error {
	r, _, _ := purego.SyscallN(p[c], args...)
	if code := Code(int32(r)); code != 0 {
		return &CallError{Call: symbols[c], Code: code}
	}
	return nil
}

func (p *pure) DeviceCount() (int, error) {
	var n int32
	err := p.call(cuDeviceGetCount, uintptr(unsafe.Pointer(&n)))
	return int(n), err
}

func (p *pure) DeviceName(device int) (string, error) {
	name := make([]byte, 256)
	err := p.call(cuDeviceGetName, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)), uintptr(device))
	for i, c := range name {
		if c == 0 {
			return string(name[:i]), err
		}
	}
	return string(name), err
}

func (p *pure) DeviceMemory(device int) (int64, error) {
	var n int64
	err := p.call(cuDeviceTotalMem, uintptr(unsafe.Pointer(&n)), uintptr(device))
	return n, err
}

func (p *pure) DeviceAttribute(device int, a Attribute) (int, error) {
	var v int32
	err := p.call(cuDeviceGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(a), uintptr(device))
	return int(v), err
}

func (p *pure) DriverVersion() (int, error) {
	var v int32
	err := p.call(cuDriverGetVersion, uintptr(unsafe.Pointer(&v)))
	return int(v), err
}

func (p *pure) Retain(device int) (Context, error) {
	var c Context
	err := p.call(cuDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&c)), uintptr(device))
	return c, err
}

func (p *pure) Release(device int) error {
	return p.call(cuDevicePrimaryCtxRelease, uintptr(device))
}

func (p *pure) Push(c Context) error {
	return p.call(cuCtxPushCurrent, uintptr(c))
}

func (p *pure) Pop() error {
	var c Context
	return p.call(cuCtxPopCurrent, uintptr(unsafe.Pointer(&c)))
}

func (p *pure) MemInfo() (free, total int64, err error) {
	var f, t int64
	err = p.call(cuMemGetInfo, uintptr(unsafe.Pointer(&f)), uintptr(unsafe.Pointer(&t)))
	return f, t, err
}

func (p *pure) Alloc(bytes int64) (Pointer, error) {
	var d Pointer
	err := p.call(cuMemAlloc, uintptr(unsafe.Pointer(&d)), uintptr(bytes))
	return d, err
}

func (p *pure) Free(d Pointer) error {
	return p.call(cuMemFree, uintptr(d))
}

func (p *pure) AllocHost(bytes int64) (unsafe.Pointer, error) {
	var h unsafe.Pointer
	err := p.call(cuMemHostAlloc, uintptr(unsafe.Pointer(&h)), uintptr(bytes), 0)
	return h, err
}

func (p *pure) FreeHost(h unsafe.Pointer) error {
	return p.call(cuMemFreeHost, uintptr(h))
}

func (p *pure) CopyToDevice(dst Pointer, src unsafe.Pointer, bytes int64, s Stream) error {
	return p.call(cuMemcpyHtoDAsync, uintptr(dst), uintptr(src), uintptr(bytes), uintptr(s))
}

func (p *pure) CopyToHost(dst unsafe.Pointer, src Pointer, bytes int64, s Stream) error {
	return p.call(cuMemcpyDtoHAsync, uintptr(dst), uintptr(src), uintptr(bytes), uintptr(s))
}

func (p *pure) CopyOnDevice(dst, src Pointer, bytes int64, s Stream) error {
	return p.call(cuMemcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(bytes), uintptr(s))
}

func (p *pure) Fill32(dst Pointer, value uint32, count int64, s Stream) error {
	return p.call(cuMemsetD32Async, uintptr(dst), uintptr(value), uintptr(count), uintptr(s))
}

func (p *pure) LoadModule(image []byte) (Module, error) {
	var m Module
	err := p.call(cuModuleLoadData, uintptr(unsafe.Pointer(&m)), uintptr(unsafe.Pointer(unsafe.SliceData(image))))
	return m, err
}

func (p *pure) UnloadModule(m Module) error {
	return p.call(cuModuleUnload, uintptr(m))
}

func (p *pure) GetFunction(m Module, name string) (Function, error) {
	var f Function
	cname := append([]byte(name), 0)
	err := p.call(cuModuleGetFunction, uintptr(unsafe.Pointer(&f)), uintptr(m), uintptr(unsafe.Pointer(&cname[0])))
	return f, err
}

func (p *pure) SetMaxShared(f Function, bytes int) error {
	return p.call(cuFuncSetAttribute, uintptr(f), maxDynamicShared, uintptr(bytes))
}

func (p *pure) LaunchKernel(f Function, l Launch, s Stream) error {
	params := make([]unsafe.Pointer, len(l.Args)+1) // one more, so that it has an address without arguments
	for i := range l.Args {
		params[i] = unsafe.Pointer(&l.Args[i])
	}
	err := p.call(cuLaunchKernel, uintptr(f),
		uintptr(l.Grid[0]), uintptr(l.Grid[1]), uintptr(l.Grid[2]),
		uintptr(l.Block[0]), uintptr(l.Block[1]), uintptr(l.Block[2]),
		uintptr(l.Shared), uintptr(s), uintptr(unsafe.Pointer(&params[0])), 0)
	runtime.KeepAlive(params)
	return err
}

func (p *pure) NewStream() (Stream, error) {
	var s Stream
	err := p.call(cuStreamCreate, uintptr(unsafe.Pointer(&s)), streamNonBlocking)
	return s, err
}

func (p *pure) DestroyStream(s Stream) error {
	return p.call(cuStreamDestroy, uintptr(s))
}

func (p *pure) SyncStream(s Stream) error {
	return p.call(cuStreamSynchronize, uintptr(s))
}

func (p *pure) NewEvent() (Event, error) {
	var e Event
	err := p.call(cuEventCreate, uintptr(unsafe.Pointer(&e)), 0)
	return e, err
}

func (p *pure) DestroyEvent(e Event) error {
	return p.call(cuEventDestroy, uintptr(e))
}

func (p *pure) Record(e Event, s Stream) error {
	return p.call(cuEventRecord, uintptr(e), uintptr(s))
}

func (p *pure) SyncEvent(e Event) error {
	return p.call(cuEventSynchronize, uintptr(e))
}

func (p *pure) Elapsed(start, end Event) (float64, error) {
	var ms float32
	err := p.call(cuEventElapsedTime, uintptr(unsafe.Pointer(&ms)), uintptr(start), uintptr(end))
	return float64(ms), err
}
