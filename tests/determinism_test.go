package tests

import (
	"fmt"
	"runtime"
	"testing"

	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/op"
)

// The same bits, run after run, machine after machine, whatever GOMAXPROCS is.
// The size is that of many blocks and an odd rest.
func TestSameBits(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for _, preset := range mhc.Presets {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64, op.BFloat16} {
			t.Run(fmt.Sprintf("%v/%v", preset, dt), func(t *testing.T) {
				c := newCase(preset.Config(4), 67, dt, 5, 3, 211)
				runtime.GOMAXPROCS(1)
				want := c.run(t, machine.Tape)
				for _, procs := range []int{1, 2, 7} {
					runtime.GOMAXPROCS(procs)
					for _, kind := range machine.Kinds {
						sameBits(t, want, c.run(t, kind))
					}
				}
			})
		}
	}
}
