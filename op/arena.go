package op

import (
	"sync"
	"unsafe"

	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/dtype"
)

// Arena is a CPU engine that keeps the memory of the ops' results and gives it
// out again, where the standard engine allocates and clears memory in every run:
// for ops that do little more than move numbers, that takes longer than the op.
//
//	arena := op.NewArena()
//	vm := gorgonia.NewTapeMachine(g, gorgonia.WithEngine(arena))
//	for ... {
//		vm.RunAll()
//		solver.Step(...)
//		vm.Reset()
//		arena.Recycle()
//	}
//
// Its price: Recycle ends the life of every value that ops of this package have
// computed on the arena, so copy what is to outlive it (gorgonia.Read does); and
// without Recycle, nothing is ever freed. An arena belongs to one machine, or to
// machines that run one after the other. Built-in operators allocate as they
// always do.
type Arena struct {
	tensor.StdEng

	mu   sync.Mutex
	free map[int][][]uint64 // by length
	used [][]uint64
}

// NewArena makes an arena that holds no memory yet.
func NewArena() *Arena { return &Arena{free: map[int][][]uint64{}} }

// Recycle says that nobody needs the results of runs so far any more. Their
// memory stays in the arena.
func (a *Arena) Recycle() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.used {
		a.free[len(b)] = append(a.free[len(b)], b)
	}
	clear(a.used)
	a.used = a.used[:0]
}

// take returns memory of that many bytes, with old numbers in it.
func (a *Arena) take(bytes uintptr) unsafe.Pointer {
	words := max(1, int((bytes+7)/8))
	a.mu.Lock()
	defer a.mu.Unlock()
	var b []uint64
	if f := a.free[words]; len(f) > 0 {
		b, a.free[words] = f[len(f)-1], f[:len(f)-1]
	} else {
		b = make([]uint64, words)
	}
	a.used = append(a.used, b)
	return unsafe.Pointer(unsafe.SliceData(b))
}

// arenaOf returns the arena among the engines of tensors, nil if there is none.
func arenaOf(ts []tensor.Tensor) *Arena {
	for _, t := range ts {
		if a, ok := t.Engine().(*Arena); ok {
			return a
		}
	}
	return nil
}

// alloc makes a tensor, in an arena or (nil) in memory of its own, stores it in t
// and returns its elements. Their values are undefined.
func alloc[T dtype.Storage](a *Arena, t *tensor.Tensor, shape tensor.Shape) []T {
	n := shape.TotalSize()
	if a == nil {
		elements := make([]T, n)
		*t = tensor.New(tensor.WithShape(shape...), tensor.WithBacking(elements))
		return elements
	}
	var zero T
	elements := unsafe.Slice((*T)(a.take(uintptr(n)*unsafe.Sizeof(zero))), n)
	*t = tensor.New(tensor.WithShape(shape...), tensor.WithBacking(elements), tensor.WithEngine(a))
	return elements
}
