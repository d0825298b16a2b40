//go:build mhccuda

package driver

/*
#include <cuda.h>
*/
import "C"

import (
	"reflect"
	"unsafe"

	"gorgonia.org/cu"
)

// Binding names the binding of this build.
const Binding = "gorgonia.org/cu"

// Open returns the driver, which gorgonia.org/cu has initialised at program
// start; there is no other way out of that start than success.
func Open() (Driver, error) { return bound{}, nil }

// bound makes the calls through gorgonia.org/cu, and through cgo those that it
// lacks: cuMemHostAlloc and cuFuncSetAttribute. Its handles are structs of one
// pointer, which as and handle convert.
type bound struct{}

func as[T any](handle uintptr) T { return *(*T)(unsafe.Pointer(&handle)) }

func handle[T any](v T) uintptr { return *(*uintptr)(unsafe.Pointer(&v)) }

// result gives err, a CUresult of a type that cu does not export, as a
// CallError.
func result(call string, err error) error {
	if err == nil {
		return nil
	}
	return &CallError{Call: call, Code: Code(reflect.ValueOf(err).Int())}
}

func cresult(call string, r C.CUresult) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	return &CallError{Call: call, Code: Code(r)}
}

func (bound) DeviceCount() (int, error) {
	n, err := cu.NumDevices()
	return n, result("cuDeviceGetCount", err)
}

func (bound) DeviceName(device int) (string, error) {
	name, err := cu.Device(device).Name()
	return name, result("cuDeviceGetName", err)
}

func (bound) DeviceMemory(device int) (int64, error) {
	n, err := cu.Device(device).TotalMem()
	return n, result("cuDeviceTotalMem", err)
}

func (bound) DeviceAttribute(device int, a Attribute) (int, error) {
	v, err := cu.Device(device).Attribute(cu.DeviceAttribute(a))
	return v, result("cuDeviceGetAttribute", err)
}

func (bound) DriverVersion() (int, error) {
	var v C.int
	err := cresult("cuDriverGetVersion", C.cuDriverGetVersion(&v))
	return int(v), err
}

func (bound) Retain(device int) (Context, error) {
	c, err := cu.Device(device).RetainPrimaryCtx()
	return Context(handle(c)), result("cuDevicePrimaryCtxRetain", err)
}

func (bound) Release(device int) error {
	return result("cuDevicePrimaryCtxRelease", cu.Device(device).ReleasePrimaryCtx())
}

func (bound) Push(c Context) error {
	return result("cuCtxPushCurrent", cu.PushCurrentCtx(as[cu.CUContext](uintptr(c))))
}

func (bound) Pop() error {
	_, err := cu.PopCurrentCtx()
	return result("cuCtxPopCurrent", err)
}

func (bound) MemInfo() (free, total int64, err error) {
	free, total, err = cu.MemInfo()
	return free, total, result("cuMemGetInfo", err)
}

func (bound) Alloc(bytes int64) (Pointer, error) {
	p, err := cu.MemAlloc(bytes)
	return Pointer(p), result("cuMemAlloc", err)
}

func (bound) Free(p Pointer) error { return result("cuMemFree", cu.MemFree(cu.DevicePtr(p))) }

func (bound) AllocHost(bytes int64) (unsafe.Pointer, error) {
	var p unsafe.Pointer
	err := cresult("cuMemHostAlloc", C.cuMemHostAlloc(&p, C.size_t(bytes), 0))
	return p, err
}

func (bound) FreeHost(p unsafe.Pointer) error { return result("cuMemFreeHost", cu.MemFreeHost(p)) }

func (bound) CopyToDevice(dst Pointer, src unsafe.Pointer, bytes int64, s Stream) error {
	return result("cuMemcpyHtoDAsync", cu.MemcpyHtoDAsync(cu.DevicePtr(dst), src, bytes, as[cu.Stream](uintptr(s))))
}

func (bound) CopyToHost(dst unsafe.Pointer, src Pointer, bytes int64, s Stream) error {
	return result("cuMemcpyDtoHAsync", cu.MemcpyDtoHAsync(dst, cu.DevicePtr(src), bytes, as[cu.Stream](uintptr(s))))
}

func (bound) CopyOnDevice(dst, src Pointer, bytes int64, s Stream) error {
	return result("cuMemcpyDtoDAsync", cu.MemcpyDtoDAsync(cu.DevicePtr(dst), cu.DevicePtr(src), bytes, as[cu.Stream](uintptr(s))))
}

func (bound) Fill32(dst Pointer, value uint32, count int64, s Stream) error {
	return result("cuMemsetD32Async", cu.MemsetD32Async(cu.DevicePtr(dst), uint(value), count, as[cu.Stream](uintptr(s))))
}

func (bound) LoadModule(image []byte) (Module, error) {
	m, err := cu.LoadFatBinary(string(image))
	return Module(handle(m)), result("cuModuleLoadFatBinary", err)
}

func (bound) UnloadModule(m Module) error {
	return result("cuModuleUnload", as[cu.Module](uintptr(m)).Unload())
}

func (bound) GetFunction(m Module, name string) (Function, error) {
	f, err := as[cu.Module](uintptr(m)).Function(name)
	return Function(handle(f)), result("cuModuleGetFunction", err)
}

func (bound) SetMaxShared(f Function, bytes int) error {
	return cresult("cuFuncSetAttribute",
		C.cuFuncSetAttribute(as[C.CUfunction](uintptr(f)), C.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, C.int(bytes)))
}

// LaunchKernel relies on the slots of Args: cu reads every argument as 8 bytes.
func (bound) LaunchKernel(f Function, l Launch, s Stream) error {
	params := make([]unsafe.Pointer, len(l.Args))
	for i := range l.Args {
		params[i] = unsafe.Pointer(&l.Args[i])
	}
	return result("cuLaunchKernel", as[cu.Function](uintptr(f)).Launch(
		l.Grid[0], l.Grid[1], l.Grid[2], l.Block[0], l.Block[1], l.Block[2], l.Shared, as[cu.Stream](uintptr(s)), params))
}

func (bound) NewStream() (Stream, error) {
	s, err := cu.MakeStream(cu.NonBlocking)
	return Stream(handle(s)), result("cuStreamCreate", err)
}

func (bound) DestroyStream(s Stream) error {
	c := as[cu.Stream](uintptr(s))
	return result("cuStreamDestroy", c.Destroy())
}

func (bound) SyncStream(s Stream) error {
	return result("cuStreamSynchronize", as[cu.Stream](uintptr(s)).Synchronize())
}

func (bound) NewEvent() (Event, error) {
	e, err := cu.MakeEvent(cu.DefaultEvent)
	return Event(handle(e)), result("cuEventCreate", err)
}

func (bound) DestroyEvent(e Event) error {
	c := as[cu.Event](uintptr(e))
	return result("cuEventDestroy", cu.DestroyEvent(&c))
}

func (bound) Record(e Event, s Stream) error {
	return result("cuEventRecord", as[cu.Event](uintptr(e)).Record(as[cu.Stream](uintptr(s))))
}

func (bound) SyncEvent(e Event) error {
	return result("cuEventSynchronize", as[cu.Event](uintptr(e)).Synchronize())
}

func (bound) Elapsed(start, end Event) (float64, error) {
	ms, err := as[cu.Event](uintptr(start)).Elapsed(as[cu.Event](uintptr(end)))
	return ms, result("cuEventElapsedTime", err)
}
