package graph

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
)

func newTestTrainer(t testing.TB, m *tiny, options ...TrainerOption) *Trainer {
	t.Helper()
	tr, err := NewTrainer(m.loss, m.params, options...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, tr.Close()) })
	return tr
}

func TestTrainerTrainsEveryPresetAndDtype(t *testing.T) {
	for _, preset := range mhc.Presets {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			t.Run(preset.String()+"/"+dt.String(), func(t *testing.T) {
				m := newTiny(t, preset, dt, 1)
				var losses []float64
				a := NewAdamW(0.02)
				tr := newTestTrainer(t, m, WithSolver(a), WithClipNorm(1), WithProgress(t.Output()),
					WithEval(100, 4, m.numbered(7)),
					WithCallback(func(m Metrics) error { losses = append(losses, m.Loss); return nil }))
				before, err := tr.Evaluate(context.Background(), 8, m.numbered(7))
				require.NoError(t, err)
				require.NoError(t, tr.Run(context.Background(), 300, m.numbered(5)))
				after, err := tr.Evaluate(context.Background(), 8, m.numbered(7))
				require.NoError(t, err)
				t.Log(before, after, losses[0], losses[299])
			})
		}
	}
}
