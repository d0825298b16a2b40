// Package plan is the one place where the launches of the CUDA kernels are computed: kernel names, grids, blocks, splits,
// shared memory, workspace bytes and the order of the kernel arguments. It is pure Go and needs no GPU, so all of it is
// tested where there is none.
//
// Each operator is a struct that holds its sizes, its settings and its device pointers. It has three methods:
//
//	Check() error                                 sizes and settings, with an error that names what is wrong
//	Workspace(lim Limits) (int64, error)          bytes of scratch memory; needs sizes and settings, no pointers
//	Launches(lim Limits, ws Ptr) ([]Launch, error) the kernels to launch, in order, on one stream
//
// and the last two share one function for the split, so that a workspace is never sized by another formula than the
// kernels use. A typical call:
//
//	op := plan.CoeffsForward{Tokens: n, Streams: 4, Channels: c, XType: plan.BFloat16, ... X: x, Phi: phi, ...}
//	bytes, err := op.Workspace(lim)
//	launches, err := op.Launches(lim, pool.Get(bytes))
//	for _, l := range launches { launch(module.Function(l.Name), l.Grid, l.Block, l.Shared, stream, l.Args) }
//
// # Launching
//
// Every kernel argument is one 8-byte slot (a pointer, a long long or a double), in the order of Launch.Args. A driver call
// therefore needs nothing but an array of pointers to the elements of Args. Launch.Shared may pass 48 KiB: then the function
// attribute CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES must have been raised (setting it to Limits.SharedPerBlock
// once per function is enough).
//
// # Memory
//
// A pointer of 0 means absent where a field's comment allows it: an upstream gradient that is zero, an output that nobody
// wants. The workspace must be 256-byte aligned (as a driver's allocation is), needs no initial value, and may be reused as
// soon as the launches are done in stream order. Tensors in the storage type may have any alignment that their element
// type has: a kernel with 16-byte accesses is chosen where every address and row allows it, its _any twin otherwise.
// Float32 tensors of coefficients need 4-byte alignment, and get the fast kernels with 16-byte alignment.
//
// # Empty problems
//
// With no tokens, a forward has no launches and a backward only those that zero the gradients of the parameters.
package plan

import (
	"fmt"
	"math"

	"github.com/mhc-go/mhc/sinkhorn"
)

// Ptr is a device address. 0 is absent.
type Ptr uint64

// Type is the type of the elements of a tensor.
type Type int

// The storage types of x, f, their gradients and phi. Arithmetic is in float32 whatever the storage.
const (
	Float32 Type = iota
	BFloat16
	Float16
)

// Size is the number of bytes of an element.
func (t Type) Size() int64 {
	if t == Float32 {
		return 4
	}
	return 2
}

func (t Type) valid() bool { return t == Float32 || t == BFloat16 || t == Float16 }

// String is the short name used in kernel names.
func (t Type) String() string {
	switch t {
	case Float32:
		return "f32"
	case BFloat16:
		return "bf16"
	case Float16:
		return "f16"
	}
	return fmt.Sprintf("Type(%d)", int(t))
}

// Limits is what a plan must know of a device.
type Limits struct {
	SMs            int // multiprocessors
	SharedPerBlock int // bytes of shared memory that a block may opt in to
	SharedPerSM    int // bytes of shared memory of a multiprocessor
}

// Known limits, for tests and for tables without a device.
var (
	H200    = Limits{SMs: 132, SharedPerBlock: 232448, SharedPerSM: 233472}
	A100    = Limits{SMs: 108, SharedPerBlock: 166912, SharedPerSM: 167936}
	RTX3090 = Limits{SMs: 82, SharedPerBlock: 101376, SharedPerSM: 102400} // as all of sm_86 and sm_89, but for the SMs
)

// small is whether fewer warps of a multiprocessor find room for their rings.
func (l Limits) small() bool { return l.SharedPerBlock < 128<<10 }

func (l Limits) check() error {
	if l.SMs < 1 || l.SharedPerBlock < 99<<10 || l.SharedPerSM < l.SharedPerBlock {
		return fmt.Errorf("plan: limits %+v are not those of a supported device (sm_80 or later)", l)
	}
	return nil
}

// Dim is the size of a grid or of a block.
type Dim struct{ X, Y, Z uint32 }

// Launch is one kernel launch.
type Launch struct {
	Name   string // of the kernel, as in the fatbin
	Grid   Dim
	Block  Dim
	Shared uint32   // bytes of dynamic shared memory
	Args   []uint64 // one 8-byte slot for each argument
}

func checkEps(name string, v float64) error {
	if !(v >= 0) || math.IsInf(v, 0) {
		return fmt.Errorf("plan: %s is %v, want a finite number that is not negative", name, v)
	}
	return nil
}

func checkSizes(tokens int64, streams, channels int) error {
	switch {
	case tokens < 0:
		return fmt.Errorf("plan: tokens are %d, want 0 or more", tokens)
	case streams < 1 || streams > MaxStreams:
		return fmt.Errorf("plan: streams are %d, want 1 to %d", streams, MaxStreams)
	case channels < 1:
		return fmt.Errorf("plan: channels are %d, want 1 or more", channels)
	}
	return nil
}

func checkType(name string, t Type) error {
	if !t.valid() {
		return fmt.Errorf("plan: the type of %s is %v, want Float32, BFloat16 or Float16", name, t)
	}
	return nil
}

type named struct {
	name string
	p    Ptr
}

func need(ps ...named) error {
	for _, p := range ps {
		if p.p == 0 {
			return fmt.Errorf("plan: device pointer %s is absent", p.name)
		}
	}
	return nil
}

// The bounds of the operators.
const (
	MaxStreams  = 16  // n of every operator but the standalone Sinkhorn
	MaxSinkhorn = 64  // n of the standalone Sinkhorn
	MaxColumns  = 320 // M of the standalone MatMulRMS; 16 streams need 288
)

// argument builders

type args []uint64

func (a *args) ptr(ps ...Ptr) {
	for _, p := range ps {
		*a = append(*a, uint64(p))
	}
}

func (a *args) int(vs ...int64) {
	for _, v := range vs {
		*a = append(*a, uint64(v))
	}
}

func (a *args) float(vs ...float64) {
	for _, v := range vs {
		*a = append(*a, math.Float64bits(v))
	}
}

// projection adds start, steps and eps of the Sinkhorn projection. The kernels number the starts as package sinkhorn does
// (START_SOFTMAX and START_EXP in kernels/sinkhorn.cuh).
func (a *args) projection(c sinkhorn.Config) {
	a.int(int64(c.Start), int64(c.Steps()))
	a.float(c.Eps)
}

func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func ceil(a, b int64) int64 { return (a + b - 1) / b }

func roundUp(a, b int64) int64 { return ceil(a, b) * b }

// aligned16 reports whether every address that is present is a multiple of 16.
func aligned16(ps ...Ptr) bool {
	for _, p := range ps {
		if p%16 != 0 {
			return false
		}
	}
	return true
}

func anySuffix(aligned bool) string {
	if aligned {
		return ""
	}
	return "_any"
}

// zero is the launch that sets bytes to zero.
func zero(p Ptr, bytes int64) Launch {
	var a args
	a.ptr(p)
	a.int(bytes)
	return Launch{Name: "mhc_zero", Grid: Dim{uint32(min(max(ceil(bytes, 4096), 1), 1024)), 1, 1}, Block: Dim{256, 1, 1}, Args: a}
}

// carve hands out 256-byte aligned pieces of a workspace.
type carve struct {
	base Ptr
	used int64
}

func (c *carve) take(bytes int64) Ptr {
	if bytes == 0 {
		return 0
	}
	p := c.base + Ptr(c.used)
	c.used += roundUp(bytes, 256)
	return p
}
