// Package driver is the seam between this module and the CUDA driver: the calls
// that the engine makes, and nothing else.
//
// Two bindings implement it, one a build:
//
//	build              binding            needs
//	default (Linux)    purego             libcuda.so.1 at run time; no cgo, no CUDA toolkit
//	-tags mhccuda      gorgonia.org/cu    cgo and cuda.h of CUDA 11.8 or 12 at build time
//
// Elsewhere [Open] returns an error. Both bindings work in the device's primary
// context, so device addresses can be shared with other CUDA code of the
// process.
//
// With gorgonia.org/cu a process that finds no GPU ends while it starts, with
// status 1: that package calls cuInit in its init function and exits if it fails.
// A program that must run without a GPU too takes the default build.
package driver

import "unsafe"

// Handles of the driver. The zero value is none, and stream 0 the default stream.
type (
	Context  uintptr
	Module   uintptr
	Function uintptr
	Stream   uintptr
	Event    uintptr
)

// Pointer is an address in device memory.
type Pointer uintptr

// Attribute numbers a property of a device, as cuda.h's CUdevice_attribute does.
type Attribute int

// The attributes in use.
const (
	MultiprocessorCount    Attribute = 16
	L2CacheSize            Attribute = 38 // bytes
	ComputeCapabilityMajor Attribute = 75
	ComputeCapabilityMinor Attribute = 76
	SharedMemoryPerSM      Attribute = 81 // bytes
	SharedMemoryPerBlock   Attribute = 97 // bytes, at most, that a block may ask for
)

// Launch is one kernel launch.
type Launch struct {
	Grid, Block [3]int
	Shared      int // bytes of dynamic shared memory
	// Args holds the kernel's arguments, each in a slot of its own: the kernel
	// reads as many of the slot's 8 bytes, from the lowest, as its parameter has.
	Args []uint64
}

// Driver makes the calls. A method is named for its call, fails with a
// [CallError], and, unless said otherwise, wants a current context: that of the
// calling thread, as Push and Pop set it.
type Driver interface {
	// DeviceCount, DeviceName, DeviceMemory (in bytes), DeviceAttribute and
	// DriverVersion (1000 major + 10 minor) need no context.
	DeviceCount() (int, error)
	DeviceName(device int) (string, error)
	DeviceMemory(device int) (int64, error)
	DeviceAttribute(device int, a Attribute) (int, error)
	DriverVersion() (int, error)

	// Retain takes a reference on the primary context of a device, Release gives
	// it back. Neither makes it current, nor needs one that is.
	Retain(device int) (Context, error)
	Release(device int) error
	// Push makes c the calling thread's current context, Pop the one before it.
	Push(c Context) error
	Pop() error

	MemInfo() (free, total int64, err error)
	Alloc(bytes int64) (Pointer, error)
	Free(p Pointer) error
	// AllocHost allocates page-locked host memory, which Go's collector does not
	// know.
	AllocHost(bytes int64) (unsafe.Pointer, error)
	FreeHost(p unsafe.Pointer) error

	// The copies and the fill are queued on the stream and return at once where
	// the host side is page-locked; the caller keeps both sides alive.
	CopyToDevice(dst Pointer, src unsafe.Pointer, bytes int64, s Stream) error
	CopyToHost(dst unsafe.Pointer, src Pointer, bytes int64, s Stream) error
	CopyOnDevice(dst, src Pointer, bytes int64, s Stream) error
	Fill32(dst Pointer, value uint32, count int64, s Stream) error

	// LoadModule loads a cubin, PTX or fatbin image.
	LoadModule(image []byte) (Module, error)
	UnloadModule(m Module) error
	GetFunction(m Module, name string) (Function, error)
	// SetMaxShared lets f be launched with up to bytes of dynamic shared memory,
	// which is needed above 48 KiB.
	SetMaxShared(f Function, bytes int) error
	LaunchKernel(f Function, l Launch, s Stream) error

	// NewStream creates a stream that does not wait for the default stream.
	NewStream() (Stream, error)
	DestroyStream(s Stream) error
	SyncStream(s Stream) error

	NewEvent() (Event, error)
	DestroyEvent(e Event) error
	Record(e Event, s Stream) error
	SyncEvent(e Event) error
	// Elapsed is the time between two recorded events, in milliseconds.
	Elapsed(start, end Event) (float64, error)
}
