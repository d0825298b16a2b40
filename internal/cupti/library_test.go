//go:build linux && !android && (amd64 || arm64)

package cupti

import (
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mhc-go/mhc/cuda"
	"github.com/mhc-go/mhc/cuda/plan"
)

func TestAMissingLibraryIsNamed(t *testing.T) {
	_, err := open([]string{"libcupti.so.0", "/nowhere/libcupti.so"})
	require.ErrorContains(t, err, "cupti: none of libcupti.so.13, libcupti.so.12, libcupti.so.11.8, libcupti.so found by the loader")
	assert.ErrorContains(t, err, "CUDA_HOME")
	_, err = open([]string{"libcupti.so.0", "libc.so.6"})
	require.ErrorContains(t, err, "cupti: libc.so.6: ")
	assert.ErrorContains(t, err, "cuptiGetVersion", "the function that the C library lacks")
}

func TestToolkitsAreSearched(t *testing.T) {
	files := toolkitLibraries(func(name string) string { return map[string]string{"CUDA_HOME": "/opt/cuda"}[name] })
	assert.Len(t, files, 2*2*len(libraries))
	assert.Equal(t, "/opt/cuda/lib64/libcupti.so.13", files[0])
	assert.Contains(t, files, "/opt/cuda/extras/CUPTI/lib64/libcupti.so")
	assert.Contains(t, files, "/usr/local/cuda/lib64/libcupti.so.12")
}

// CUPTI calls back from the thread of a launch or a flush and from threads of its
// own, which Go has not made.
func TestBuffersTravelFromAnyThread(t *testing.T) {
	libc, err := purego.Dlopen("libpthread.so.0", purego.RTLD_NOW)
	require.NoError(t, err)
	create, err := purego.Dlsym(libc, "pthread_create")
	require.NoError(t, err)
	join, err := purego.Dlsym(libc, "pthread_join")
	require.NoError(t, err)

	var b buffers
	request, complete := purego.NewCallback(b.lend), purego.NewCallback(b.take)
	// session stands for what CUPTI does: it asks for a buffer, fills it and gives
	// it back.
	session := func(fill byte, valid uintptr) {
		var memory *byte
		var size, most uintptr
		most = 1
		purego.SyscallN(request, uintptr(unsafe.Pointer(&memory)), uintptr(unsafe.Pointer(&size)), uintptr(unsafe.Pointer(&most)))
		require.EqualValues(t, bufferBytes, size)
		assert.Zero(t, most, "no limit to the records")
		assert.Zero(t, uintptr(unsafe.Pointer(memory))%8)
		*memory = fill
		purego.SyscallN(complete, 0, 0, uintptr(unsafe.Pointer(memory)), size, valid)
	}
	session(7, 16)
	thread := purego.NewCallback(func(uintptr) uintptr { session(9, 8); return 0 })
	var id uintptr
	r, _, _ := purego.SyscallN(create, uintptr(unsafe.Pointer(&id)), 0, thread, 0)
	require.Zero(t, r)
	r, _, _ = purego.SyscallN(join, id, 0)
	require.Zero(t, r)

	filled := b.collect()
	require.Len(t, filled, 2)
	assert.Equal(t, append([]byte{7}, make([]byte, 15)...), filled[0])
	assert.Equal(t, append([]byte{9}, make([]byte, 7)...), filled[1])
	assert.Empty(t, b.collect())
	assert.Empty(t, b.lent)
	b.reuse(filled)
	session(1, bufferBytes)
	assert.Len(t, b.free, 1, "of the two, one is in use again")
	assert.Len(t, b.collect()[0], bufferBytes)
}

// profiler loads the machine's CUPTI.
func profiler(t *testing.T) *Profiler {
	p, err := Open()
	if err != nil {
		t.Skipf("needs CUPTI: %v", err)
	}
	return p
}

func TestTraceWithoutAGPUSaysWhatFailed(t *testing.T) {
	p := profiler(t)
	if e, err := cuda.New(); err == nil {
		require.NoError(t, e.Close())
		t.Skip("needs a machine without a GPU")
	}
	_, err := p.Trace(func() error { t.Error("nothing is traced"); return nil })
	assert.ErrorContains(t, err, "cupti: cuptiActivityRegisterCallbacks: CUPTI_ERROR_")
}

func TestTraceOnAGPU(t *testing.T) {
	p := profiler(t)
	e, err := cuda.New()
	if err != nil {
		if os.Getenv("MHC_REQUIRE_GPU") == "1" {
			t.Fatal(err)
		}
		t.Skipf("needs a GPU: %v", err)
	}
	defer e.Close()
	s, err := e.NewStream()
	require.NoError(t, err)
	const size = 64 << 20
	memory, err := e.NewBuffer(2 * size)
	require.NoError(t, err)
	o := &plan.Cast{Count: size / 4, From: plan.Float32, To: plan.Float32, In: memory.Ptr(), Out: memory.Ptr() + size}
	require.NoError(t, s.Fill(o.In, 0, size/4))
	for _, runs := range []int{3, 2000} { // one buffer and several
		all, err := p.Trace(func() error {
			for range runs {
				if err := s.Run(o); err != nil {
					return err
				}
			}
			return s.Synchronize()
		})
		require.NoError(t, err)
		sums, err := Runs(all, "mhc_", []string{"mhc_cast"}, runs)
		require.NoError(t, err)
		for _, sum := range sums {
			assert.Greater(t, sum.Seconds(), 2*size/100e12, "faster than any memory")
			assert.Less(t, sum.Seconds(), 2*size/1e9)
		}
		// What is not traced leaves no record.
		require.NoError(t, s.Run(o))
		require.NoError(t, s.Synchronize())
	}
	assert.True(t, strings.HasPrefix(p.String(), "CUPTI, interface version "), p)
}
