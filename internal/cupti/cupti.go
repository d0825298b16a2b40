// Package cupti times CUDA kernels as a profiler does: it reads the activity
// records of NVIDIA's CUPTI, which hold when each kernel began and ended on the
// device. Unlike a time between two events around a kernel, such a time holds
// nothing of the events.
//
// The library is a part of the CUDA toolkit, not of the driver. It is loaded at
// run time, without cgo; where it is missing [Open] says so.
package cupti

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"
)

// Kernel is one run of a kernel.
type Kernel struct {
	Name       string
	Start, End uint64 // nanoseconds, of one clock
}

// Time is from the kernel's start to its end.
func (k Kernel) Time() time.Duration { return time.Duration(k.End - k.Start) }

// Runs adds up the kernels' times of each run of a sequence of launches. Of the
// kernels, only those count whose name has the prefix; of these there must be
// the launches of all runs, in order, or the error names the first that is not.
func Runs(kernels []Kernel, prefix string, launches []string, runs int) ([]time.Duration, error) {
	sums := make([]time.Duration, runs)
	seen := 0
	for _, k := range kernels {
		if !strings.HasPrefix(k.Name, prefix) {
			continue
		}
		if seen < runs*len(launches) {
			if want := launches[seen%len(launches)]; k.Name != want {
				return nil, fmt.Errorf("cupti: kernel %d is %s, want %s", seen, k.Name, want)
			}
			sums[seen/len(launches)] += k.Time()
		}
		seen++
	}
	if seen != runs*len(launches) {
		return nil, fmt.Errorf("cupti: %d records of kernels %s*, want %d of %d runs of %d launches", seen, prefix, runs*len(launches), runs, len(launches))
	}
	return sums, nil
}

// record is the head of a kernel's record, whose fields have had these places in
// all versions of the struct since CUDA 10.0. Compared with cupti_activity.h of
// CUDA 11.8, 12.8 and 13.0, each of which declares all structs before its own:
//
//	version of the interface    CUDA            struct
//	12 to 18                    10.0 to 11.8    CUpti_ActivityKernel4 to 8
//	19 to 28                    12.0 to 12.9    CUpti_ActivityKernel9
//	130000, 130001              13.0            CUpti_ActivityKernel10
type record struct {
	kind       uint32
	_          [12]byte
	start, end uint64 // nanoseconds
	_          [72]byte
	name       *byte // a C string that CUPTI owns
}

// Values of CUpti_ActivityKind.
const (
	kindKernel           = 3
	kindConcurrentKernel = 10
)

// known says whether the records of a version of the interface are laid out so.
func known(version uint32) bool {
	return version >= 12 && version <= 28 || version == 130000 || version == 130001
}

// kernels are those of the records in buffers, in the order of their starts. next
// gives the record after another in a buffer, the first after nil, and nil after
// the last.
func kernels(buffers [][]byte, next func(buffer []byte, after *record) (*record, error)) ([]Kernel, error) {
	var all []Kernel
	for _, b := range buffers {
		r, err := next(b, nil)
		for ; err == nil && r != nil; r, err = next(b, r) {
			if r.kind != kindKernel && r.kind != kindConcurrentKernel {
				continue
			}
			k := Kernel{Name: text(r.name), Start: r.start, End: r.end}
			if k.Start == 0 || k.End < k.Start {
				return nil, fmt.Errorf("cupti: kernel %s has the times %d and %d, want those of its start and end", k.Name, k.Start, k.End)
			}
			all = append(all, k)
		}
		if err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b Kernel) int { return cmp.Compare(a.Start, b.Start) })
	return all, nil
}

// text is a C string; of nil, "".
func text(s *byte) string {
	if s == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(s), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(s, n))
}
