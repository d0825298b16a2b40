// Package tier says which instruction set the vector kernels use.
package tier

import (
	"fmt"
	"os"

	"golang.org/x/sys/cpu"
)

// Tier is a level of vector instructions.
type Tier int

// The tiers, weakest first. Go is portable code without assembly.
const (
	Go Tier = iota
	AVX2
	AVX512
)

var names = [...]string{Go: "go", AVX2: "avx2", AVX512: "avx512"}

func (t Tier) String() string { return names[t] }

// Variable is the environment variable that lowers the tier: "go", "avx2" or
// "avx512". A tier that the CPU lacks is not raised to.
const Variable = "MHC_CPU"

// Available is the best tier of this CPU.
func Available() Tier {
	switch {
	case cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512DQ && cpu.X86.HasAVX512VL && cpu.X86.HasAVX2 && cpu.X86.HasFMA:
		return AVX512
	case cpu.X86.HasAVX2 && cpu.X86.HasFMA:
		return AVX2
	}
	return Go
}

// Active is the tier in use, fixed at program start.
var Active = func() Tier {
	t, err := choose(os.Getenv(Variable), Available())
	if err != nil {
		fmt.Fprintln(os.Stderr, "mhc:", err)
	}
	return t
}()

func choose(want string, have Tier) (Tier, error) {
	if want == "" {
		return have, nil
	}
	for t, name := range names {
		if name == want {
			return min(Tier(t), have), nil
		}
	}
	return have, fmt.Errorf("%s=%q: want go, avx2 or avx512; using %s", Variable, want, have)
}
