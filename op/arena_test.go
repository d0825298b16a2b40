package op_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/op"
)

// On an arena every op computes the same bits, whatever its memory held before,
// and after the first run it needs no more memory.
func TestArena(t *testing.T) {
	for _, d := range []struct{ storage, arithmetic tensor.Dtype }{
		{tensor.Float64, tensor.Float64}, {tensor.Float32, tensor.Float32}, {op.BFloat16, tensor.Float32},
	} {
		for _, c := range opCases(sizes{[]int{2, 3}, 3, 5}, d.storage, d.storage, d.arithmetic, mhc.Liger) {
			t.Run(d.storage.Name()+"/"+c.name, func(t *testing.T) {
				eachMachine(t, func(t *testing.T, kind machine.Kind) { testArena(t, kind, c.build, c.in) })
			})
		}
		n := smallNetwork(d.storage)
		t.Run(d.storage.Name()+"/network", func(t *testing.T) {
			eachMachine(t, func(t *testing.T, kind machine.Kind) { testArena(t, kind, n.build, n.operands()) })
		})
	}
}

func testArena(t *testing.T, kind machine.Kind, b build, in []operand) {
	want := run(t, kind, programOf(t, b, in))
	arena := op.NewArena()
	m, err := machine.New(kind, programOf(t, b, in), gorgonia.WithEngine(arena))
	require.NoError(t, err)
	defer m.Close()
	held := 0
	for i := range 3 {
		got, err := m.Run()
		require.NoError(t, err)
		assertSameResult(t, want, got)
		if i == 0 {
			held = arena.Held()
			require.NotZero(t, held)
		}
		assert.Equal(t, held, arena.Held(), "run %d", i)
		arena.Recycle()
		arena.Poison()
	}
}
