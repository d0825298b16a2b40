// Package tier says which instruction set the vector kernels use.
package tier

import (
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/cpu"
)

// Tier is a level of vector instructions.
type Tier int

// The tiers, weakest first.
const (
	// Go is portable code without assembly.
	Go Tier = iota
	// AVX2 has AVX2, FMA, F16C and BMI2.
	AVX2
	// AVX512 has AVX2's and AVX-512 F, BW, DQ and VL.
	AVX512
)

var names = [...]string{Go: "go", AVX2: "avx2", AVX512: "avx512"}

func (t Tier) String() string { return names[t] }

// Variable is the environment variable that lowers the tier: "go", "avx2" or
// "avx512". A value that is no tier, or one that is not available, is said on
// standard error, and the best tier is used; [Refused] is for those who would
// rather not run then.
const Variable = "MHC_CPU"

// Available is the best tier of this CPU; of a build with the tag purego, Go.
func Available() Tier {
	x := &cpu.X86
	switch {
	case !assembly:
		return Go
	case !x.HasAVX2 || !x.HasFMA || !x.HasF16C || !x.HasBMI2:
		return Go
	case !x.HasAVX512F || !x.HasAVX512BW || !x.HasAVX512DQ || !x.HasAVX512VL:
		return AVX2
	}
	return AVX512
}

// Active is the tier in use, fixed at program start. Only tests assign to it.
var Active = func() Tier {
	t, err := choose(os.Getenv(Variable), Available())
	if err != nil {
		fmt.Fprintln(os.Stderr, "mhc:", err)
	}
	return t
}()

// Refused says why the tier that [Variable] names is not in use; nil if it is.
func Refused() error {
	_, err := choose(os.Getenv(Variable), Available())
	return err
}

func choose(want string, have Tier) (Tier, error) {
	if want == "" {
		return have, nil
	}
	t := Tier(slices.Index(names[:], want))
	switch {
	case t < Go:
		return have, fmt.Errorf("%s is %q, want go, avx2 or avx512; using %s", Variable, want, have)
	case t > have:
		return have, fmt.Errorf("%s is %q, which this CPU or build lacks; using %s", Variable, want, have)
	}
	return t, nil
}
