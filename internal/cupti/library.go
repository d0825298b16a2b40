//go:build linux && !android && (amd64 || arm64)

package cupti

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// function numbers a function of the library.
type function int

const (
	cuptiGetVersion function = iota
	cuptiGetResultString
	cuptiActivityRegisterCallbacks
	cuptiActivityEnable
	cuptiActivityDisable
	cuptiActivityFlushAll
	cuptiActivityGetNextRecord
	functions
)

// symbols are their names.
var symbols = [functions]string{
	"cuptiGetVersion",
	"cuptiGetResultString",
	"cuptiActivityRegisterCallbacks",
	"cuptiActivityEnable",
	"cuptiActivityDisable",
	"cuptiActivityFlushAll",
	"cuptiActivityGetNextRecord",
}

// Constants of cupti_activity.h and cupti_result.h.
const (
	flushForced     = 1  // CUPTI_ACTIVITY_FLAG_FLUSH_FORCED
	maxLimitReached = 12 // CUPTI_ERROR_MAX_LIMIT_REACHED
)

// libraries are the names under which CUDA toolkits install CUPTI, the newest
// first.
var libraries = []string{"libcupti.so.13", "libcupti.so.12", "libcupti.so.11.8", "libcupti.so"}

// Profiler is a loaded CUPTI. A process has one.
type Profiler struct {
	name     string // of the file
	version  uint32 // of the interface
	function [functions]uintptr

	tracing sync.Mutex // held by Trace
	buffers            // what the callbacks work on
}

// Open loads CUPTI, once a process: from where the loader looks, or else from a
// toolkit under CUDA_HOME, CUDA_PATH or /usr/local/cuda. The error says what is
// missing.
var Open = sync.OnceValues(func() (*Profiler, error) {
	return open(append(slices.Clone(libraries), toolkitLibraries(os.Getenv)...))
})

// toolkitLibraries are the files that may be CUPTI in a toolkit.
func toolkitLibraries(getenv func(string) string) []string {
	var files []string
	for _, root := range []string{getenv("CUDA_HOME"), getenv("CUDA_PATH"), "/usr/local/cuda"} {
		if root == "" {
			continue
		}
		for _, dir := range []string{"lib64", "extras/CUPTI/lib64"} {
			for _, name := range libraries {
				files = append(files, filepath.Join(root, dir, name))
			}
		}
	}
	return files
}

// open loads the first of the files that is a CUPTI whose records are known.
func open(files []string) (*Profiler, error) {
	var refused []error
	for _, file := range files {
		lib, err := purego.Dlopen(file, purego.RTLD_NOW|purego.RTLD_LOCAL)
		if err != nil {
			continue
		}
		p := &Profiler{name: file}
		if err := p.load(lib); err != nil {
			refused = append(refused, fmt.Errorf("cupti: %s: %w", file, err))
			continue
		}
		return p, nil
	}
	if len(refused) > 0 {
		return nil, errors.Join(refused...)
	}
	return nil, fmt.Errorf("cupti: none of %s found by the loader, or in lib64 or extras/CUPTI/lib64 of a toolkit at CUDA_HOME, CUDA_PATH or /usr/local/cuda",
		strings.Join(libraries, ", "))
}

// load finds the functions and checks the version.
func (p *Profiler) load(lib uintptr) (err error) {
	for f, name := range symbols {
		if p.function[f], err = purego.Dlsym(lib, name); err != nil {
			return err
		}
	}
	if err := p.call(cuptiGetVersion, uintptr(unsafe.Pointer(&p.version))); err != nil {
		return err
	}
	if !known(p.version) {
		return fmt.Errorf("interface version %d has records of an unknown layout", p.version)
	}
	return nil
}

// String says which library it is.
func (p *Profiler) String() string {
	return fmt.Sprintf("CUPTI, interface version %d, %s", p.version, filepath.Base(p.name))
}

// resultError is the result of a call that failed.
type resultError struct {
	call   string
	result uint32
	text   string
}

func (e *resultError) Error() string {
	return fmt.Sprintf("cupti: %s: %s (%d)", e.call, e.text, e.result)
}

// call calls a function. The pragma makes the compiler keep alive, and on the
// heap, what an argument of the form uintptr(unsafe.Pointer(&v)) points to.
//
//go:uintptrescapes
func (p *Profiler) call(f function, args ...uintptr) error {
	r, _, _ := purego.SyscallN(p.function[f], args...)
	if uint32(r) == 0 {
		return nil
	}
	var s *byte
	purego.SyscallN(p.function[cuptiGetResultString], uintptr(uint32(r)), uintptr(unsafe.Pointer(&s)))
	return &resultError{symbols[f], uint32(r), text(s)}
}

// Trace runs f, which must wait for the kernels that it launches, and returns
// those kernels, and any other that ran in the process meanwhile, in the order of
// their starts. Launches take longer while it runs.
func (p *Profiler) Trace(f func() error) (all []Kernel, err error) {
	p.tracing.Lock()
	defer p.tracing.Unlock()
	if p.request == 0 {
		p.request, p.complete = purego.NewCallback(p.lend), purego.NewCallback(p.take)
	}
	if err := p.call(cuptiActivityRegisterCallbacks, p.request, p.complete); err != nil {
		return nil, err
	}
	if err := p.call(cuptiActivityEnable, kindConcurrentKernel); err != nil {
		return nil, err
	}
	err = f()
	err = errors.Join(err, p.call(cuptiActivityFlushAll, flushForced), p.call(cuptiActivityDisable, kindConcurrentKernel))
	filled := p.collect()
	defer p.reuse(filled)
	if err != nil {
		return nil, err
	}
	return kernels(filled, p.next)
}

// next is the record after another in a buffer.
func (p *Profiler) next(buffer []byte, after *record) (*record, error) {
	if len(buffer) == 0 {
		return nil, nil
	}
	err := p.call(cuptiActivityGetNextRecord, uintptr(unsafe.Pointer(&buffer[0])), uintptr(len(buffer)), uintptr(unsafe.Pointer(&after)))
	var r *resultError
	if errors.As(err, &r) && r.result == maxLimitReached {
		return nil, nil
	}
	return after, err
}

// bufferBytes is the size of a buffer: of some thousand records.
const bufferBytes = 1 << 20

// buffers are the memory that CUPTI writes records to. It asks for a buffer and
// gives it back from any thread.
type buffers struct {
	request, complete uintptr // the callbacks

	mu     sync.Mutex
	free   [][]byte
	lent   map[*byte][]byte
	filled [][]byte // each as long as what is valid of it
}

// lend is CUpti_BuffersCallbackRequestFunc.
func (b *buffers) lend(buffer **byte, size, maxRecords *uintptr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.free) == 0 {
		b.free = append(b.free, make([]byte, bufferBytes)) // the allocator aligns it to a page
	}
	last := len(b.free) - 1
	memory := b.free[last]
	b.free = b.free[:last]
	if b.lent == nil {
		b.lent = map[*byte][]byte{}
	}
	b.lent[&memory[0]] = memory
	*buffer, *size, *maxRecords = &memory[0], bufferBytes, 0
}

// take is CUpti_BuffersCallbackCompleteFunc.
func (b *buffers) take(_ uintptr, _ uint32, buffer *byte, _, valid uintptr) {
	b.mu.Lock()
	defer b.mu.Unlock()
	memory := b.lent[buffer]
	delete(b.lent, buffer)
	b.filled = append(b.filled, memory[:valid])
}

// collect takes the buffers that came back.
func (b *buffers) collect() [][]byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	filled := b.filled
	b.filled = nil
	return filled
}

// reuse makes buffers ready to be lent again.
func (b *buffers) reuse(filled [][]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, memory := range filled {
		b.free = append(b.free, memory[:bufferBytes])
	}
}
