package graph

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/op"
)

// A trainer on an arena, with evaluations and accumulation between, ends with
// the same weights to the last bit.
func TestTrainerOnArena(t *testing.T) {
	train := func(options ...TrainerOption) map[string][]float64 {
		m := newTiny(t, mhc.Liger, tensor.Float32, 1)
		options = append(options, WithSolver(NewAdamW(0.02)), WithClipNorm(1), WithAccumulation(2), WithEval(5, 2, m.numbered(7)))
		tr := newTestTrainer(t, m, options...)
		require.NoError(t, tr.Run(context.Background(), 20, m.numbered(5)))
		return m.weights(t)
	}
	assert.Equal(t, train(), train(WithEngine(op.NewArena())))
}
