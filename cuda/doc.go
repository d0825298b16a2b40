// Package cuda runs the mHC operators on an NVIDIA GPU, sm_80 or newer.
//
// An [Engine] implements op.Engine. Graphs are built as for the CPU, and move to
// the GPU by one option of either machine:
//
//	eng, err := cuda.New()
//	vm := gorgonia.NewTapeMachine(g, gorgonia.WithEngine(eng))
//
// The mHC ops take and give tensors in host memory, which the engine copies to
// the device and back; all other ops go on running on the CPU. What the kernels
// do not know (float64, more than 16 streams) is left to the CPU too.
//
// Programs that hold their data on the device skip the copies: they take memory
// with [Engine.NewBuffer] and run the operators of package plan, the same ones,
// on a [Stream]:
//
//	s, err := eng.NewStream()
//	err = s.Run(&plan.PreForward{Tokens: n, Streams: 4, Channels: c, XType: plan.BFloat16, X: x, HPre: h, Out: out})
//	err = s.Synchronize()
//
// No cgo and no CUDA toolkit are needed, only the driver, which is loaded when
// the first engine is made. Where there is no driver or no GPU, [New] returns an
// error that says so. The build tag mhccuda takes the binding gorgonia.org/cu
// instead, which needs cgo and cuda.h, and ends the process with status 1 before
// main where there is no GPU; package driver says more.
//
// # Environment
//
//	variable            effect when set to 1
//	MHC_CUDA_DEBUG      every kernel is waited for, and an error names it, its grid and its operator's sizes
//	MHC_REQUIRE_GPU     tests that need a GPU fail, instead of being skipped, where there is none
//
// # Memory
//
// Device memory comes from a pool: a call that was made before allocates none.
// Host tensors pass through page-locked memory, at most 16 MiB for each of the
// four calls that an engine works on at a time, and each [Stream] that is used
// for copies. Where the device runs out of memory, the engine frees what it
// keeps and tries again before it returns an error.
//
// After an error, the tensors that were given are as they were. An error that
// costs the process its use of the device (an illegal access by some kernel, or
// hardware that fails) is returned by every later call; Close then still frees
// what can be freed.
package cuda
