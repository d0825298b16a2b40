package cupti

import (
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// recordBytes is the size of CUpti_ActivityKernel8.
const recordBytes = 200

// buffer is as CUPTI fills it: records one after the other, with the fields at
// the offsets of the header.
type buffer struct {
	bytes  []byte
	pinned runtime.Pinner
}

func (b *buffer) add(kind uint32, start, end uint64, name string) {
	r := make([]byte, recordBytes)
	for i := range r {
		r[i] = 0xa5 // what is not read
	}
	c := append([]byte(name), 0)
	b.pinned.Pin(&c[0])
	binary.NativeEndian.PutUint32(r, kind)
	binary.NativeEndian.PutUint64(r[16:], start)
	binary.NativeEndian.PutUint64(r[24:], end)
	binary.NativeEndian.PutUint64(r[104:], uint64(uintptr(unsafe.Pointer(&c[0]))))
	b.bytes = append(b.bytes, r...)
}

// walk is cuptiActivityGetNextRecord of such buffers.
func walk(buffer []byte, after *record) (*record, error) {
	i := 0
	if after != nil {
		i = int(uintptr(unsafe.Pointer(after))-uintptr(unsafe.Pointer(&buffer[0]))) + recordBytes
	}
	if i >= len(buffer) {
		return nil, nil
	}
	return (*record)(unsafe.Pointer(&buffer[i])), nil
}

func TestKernelsAreReadFromBuffers(t *testing.T) {
	var a, b buffer
	defer a.pinned.Unpin()
	defer b.pinned.Unpin()
	a.add(kindConcurrentKernel, 5000, 6500, "mhc_late")
	a.add(2, 1, 0, "a memory fill, which is no kernel")
	b.add(kindKernel, 1<<40, 1<<40+7, "the last")
	b.add(kindConcurrentKernel, 1000, 1000, "")
	got, err := kernels([][]byte{a.bytes, nil, b.bytes}, walk)
	require.NoError(t, err)
	assert.Equal(t, []Kernel{{"", 1000, 1000}, {"mhc_late", 5000, 6500}, {"the last", 1 << 40, 1<<40 + 7}}, got)
	assert.Equal(t, 1500*time.Nanosecond, got[1].Time())
}

func TestRecordsWithoutTimesAreRefused(t *testing.T) {
	for _, times := range [][2]uint64{{0, 0}, {0, 10}, {10, 9}} {
		var b buffer
		b.add(kindConcurrentKernel, 1, 2, "good")
		b.add(kindConcurrentKernel, times[0], times[1], "bad")
		_, err := kernels([][]byte{b.bytes}, walk)
		assert.ErrorContains(t, err, "kernel bad has the times")
		b.pinned.Unpin()
	}
	failure := errors.New("no more")
	_, err := kernels([][]byte{make([]byte, recordBytes)}, func([]byte, *record) (*record, error) { return nil, failure })
	assert.ErrorIs(t, err, failure)
}

func TestOnlyKnownLayoutsAreRead(t *testing.T) {
	for version, want := range map[uint32]bool{
		0: false, 11: false, 12: true, 18: true, 28: true, 29: false, 129999: false, 130000: true, 130001: true, 130002: false, math.MaxUint32: false,
	} {
		assert.Equal(t, want, known(version), "%d", version)
	}
}

func TestRuns(t *testing.T) {
	run := []Kernel{{"fill", 0, 9}, {"mhc_a", 10, 13}, {"mhc_b", 20, 25}, {"mhc_a", 30, 31}}
	launches := []string{"mhc_a", "mhc_b", "mhc_a"}
	sums, err := Runs(append(run, Kernel{"mhc_a", 40, 50}, Kernel{"other", 0, 99}, Kernel{"mhc_b", 50, 70}, Kernel{"mhc_a", 90, 190}), "mhc_", launches, 2)
	require.NoError(t, err)
	assert.Equal(t, []time.Duration{3 + 5 + 1, 10 + 20 + 100}, sums)

	none, err := Runs(run[:1], "mhc_", nil, 3)
	require.NoError(t, err)
	assert.Equal(t, make([]time.Duration, 3), none)

	for want, kernels := range map[string][]Kernel{
		"2 records of kernels mhc_*, want 3 of 1 runs of 3 launches": run[:3],
		"0 records of kernels mhc_*, want 3":                         nil,
		"4 records of kernels mhc_*, want 3":                         append(run, Kernel{"mhc_a", 40, 50}),
		"kernel 1 is mhc_a, want mhc_b":                              {run[1], run[3], run[2]},
	} {
		_, err := Runs(kernels, "mhc_", launches, 1)
		assert.ErrorContains(t, err, want)
	}
	_, err = Runs(run[1:2], "mhc_", nil, 1)
	assert.ErrorContains(t, err, "1 records of kernels mhc_*, want 0 of 1 runs of 0 launches")
}
