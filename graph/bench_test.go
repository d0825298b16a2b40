package graph

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
)

// What the trainer adds to the machine's run and the solver's step: it zeroes the
// gradients, takes their norm, and hands over the batch.
func BenchmarkStep(b *testing.B) {
	build := func(b *testing.B) (*tiny, Batch) {
		m := newTiny(b, mhc.Liger, tensor.Float32, 1)
		batch, err := m.numbered(5)(0)
		require.NoError(b, err)
		return m, batch
	}
	b.Run("trainer", func(b *testing.B) {
		m, batch := build(b)
		tr := newTestTrainer(b, m, WithClipNorm(1))
		for b.Loop() {
			if _, err := tr.advance(func(int) (Batch, error) { return batch, nil }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("own", func(b *testing.B) {
		m, batch := build(b)
		_, err := gorgonia.Grad(m.loss, m.params...)
		require.NoError(b, err)
		vm := gorgonia.NewTapeMachine(m.g, gorgonia.BindDualValues(m.params...))
		defer vm.Close()
		require.NoError(b, gorgonia.Let(m.x, batch.Inputs["x"]))
		require.NoError(b, gorgonia.Let(m.y, batch.Inputs["y"]))
		solver, model := NewAdamW(1e-3), gorgonia.NodesToValueGrads(m.params)
		for b.Loop() {
			if err := vm.RunAll(); err != nil {
				b.Fatal(err)
			}
			if err := solver.Step(model); err != nil {
				b.Fatal(err)
			}
			vm.Reset()
		}
	})
}

func BenchmarkCheckpoint(b *testing.B) {
	path := filepath.Join(b.TempDir(), "checkpoint.safetensors")
	c := &Checkpoint{Weights: State{"w": dense(nil, tensor.Float32, 1<<22)}}
	b.SetBytes(4 << 22)
	b.Run("write", func(b *testing.B) {
		b.SetBytes(4 << 22)
		for b.Loop() {
			require.NoError(b, c.Write(path))
		}
	})
	b.Run("read", func(b *testing.B) {
		b.SetBytes(4 << 22)
		for b.Loop() {
			_, err := ReadCheckpoint(path)
			require.NoError(b, err)
		}
	})
}

func BenchmarkAmaxGain(b *testing.B) {
	const tokens, n, layers = 2048, 4, 16
	hres := make([][]float32, layers)
	for i := range hres {
		hres[i] = make([]float32, tokens*n*n)
	}
	for b.Loop() {
		_, _, err := AmaxGain(hres, n, mhc.ApplyRows)
		require.NoError(b, err)
	}
}
