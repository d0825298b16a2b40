package driver

import "fmt"

// Code is a CUresult other than success.
type Code int

// The codes that the engine tells apart.
const (
	OutOfMemory  Code = 2
	NoDevice     Code = 100
	InvalidImage Code = 200
	NoBinary     Code = 209
	InvalidPTX   Code = 218
	NotFound     Code = 500
)

var codes = map[Code]struct {
	name, text string
	lost       bool // the context is unusable from here on
}{
	1:            {"INVALID_VALUE", "invalid argument", false},
	OutOfMemory:  {"OUT_OF_MEMORY", "out of device memory", false},
	3:            {"NOT_INITIALIZED", "driver not initialised", false},
	4:            {"DEINITIALIZED", "driver is shutting down", true},
	34:           {"STUB_LIBRARY", "libcuda is a stub", false},
	46:           {"DEVICE_UNAVAILABLE", "device is busy or unavailable", true},
	NoDevice:     {"NO_DEVICE", "no CUDA device found", false},
	101:          {"INVALID_DEVICE", "no such device", false},
	InvalidImage: {"INVALID_IMAGE", "kernel image is invalid", false},
	201:          {"INVALID_CONTEXT", "invalid context", false},
	NoBinary:     {"NO_BINARY_FOR_GPU", "no kernel image for this GPU", false},
	214:          {"ECC_UNCORRECTABLE", "uncorrectable memory error", true},
	InvalidPTX:   {"INVALID_PTX", "PTX did not compile", false},
	220:          {"NVLINK_UNCORRECTABLE", "uncorrectable NVLink error", true},
	221:          {"JIT_COMPILER_NOT_FOUND", "PTX compiler not found", false},
	222:          {"UNSUPPORTED_PTX_VERSION", "driver is older than the PTX", false},
	226:          {"CONTAINED", "memory error contained by the device", true},
	304:          {"OPERATING_SYSTEM", "operating system call failed", false},
	400:          {"INVALID_HANDLE", "invalid handle", false},
	NotFound:     {"NOT_FOUND", "name not found", false},
	600:          {"NOT_READY", "not ready", false},
	700:          {"ILLEGAL_ADDRESS", "a kernel accessed an illegal address", true},
	701:          {"LAUNCH_OUT_OF_RESOURCES", "too many resources asked for a launch", false},
	702:          {"LAUNCH_TIMEOUT", "a kernel ran too long", true},
	709:          {"CONTEXT_IS_DESTROYED", "context was destroyed", true},
	710:          {"ASSERT", "an assertion in a kernel failed", true},
	714:          {"HARDWARE_STACK_ERROR", "a kernel's stack is corrupt", true},
	715:          {"ILLEGAL_INSTRUCTION", "a kernel ran an illegal instruction", true},
	716:          {"MISALIGNED_ADDRESS", "a kernel accessed a misaligned address", true},
	717:          {"INVALID_ADDRESS_SPACE", "a kernel accessed a wrong address space", true},
	718:          {"INVALID_PC", "a kernel's program counter is invalid", true},
	719:          {"LAUNCH_FAILED", "a kernel failed", true},
	801:          {"NOT_SUPPORTED", "not supported by the device", false},
	803:          {"SYSTEM_DRIVER_MISMATCH", "kernel driver and libcuda differ in version", false},
	804:          {"COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility is not supported by the device", false},
	999:          {"UNKNOWN", "unknown failure of the driver", true},
}

func (c Code) Error() string {
	if d, ok := codes[c]; ok {
		return fmt.Sprintf("%s (CUDA_ERROR_%s, %d)", d.text, d.name, int(c))
	}
	return fmt.Sprintf("CUDA error %d", int(c))
}

// Lost reports whether the context, and all that lives in it, is unusable after
// this error: only a new process can use the device again.
func (c Code) Lost() bool { return codes[c].lost }

// CallError is a driver call that failed. errors.Is finds its Code.
type CallError struct {
	Call string // cuMemAlloc, say
	Code Code
}

func (e *CallError) Error() string { return e.Call + ": " + e.Code.Error() }

// Unwrap returns the Code.
func (e *CallError) Unwrap() error { return e.Code }
