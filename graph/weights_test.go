package graph

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
)

func TestWeights(t *testing.T) {
	m := newTiny(t, mhc.Liger, tensor.Float32, 1)
	saved, err := SaveWeights(m.params)
	require.NoError(t, err)
	want := m.weights(t)
	assert.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(saved)))

	other := newTiny(t, mhc.Liger, tensor.Float32, 2)
	assert.NotEqual(t, want, other.weights(t))
	require.NoError(t, LoadWeights(other.params, saved))
	assert.Equal(t, want, other.weights(t))
	// A copy, both ways.
	saved["scale"].Float32s()[0] = 99
	assert.Equal(t, want, other.weights(t))
	assert.Equal(t, want, m.weights(t))

	_, err = SaveWeights(append(m.params, m.params[0]))
	assert.ErrorContains(t, err, "graph: two parameters are named w.0")
	_, err = SaveWeights(gorgonia.Nodes{m.params[0], nil})
	assert.EqualError(t, err, "graph: parameter 1 is nil")
	assert.EqualError(t, LoadWeights(gorgonia.Nodes{nil}, saved), "graph: parameter 0 is nil")
	_, err = SaveWeights(gorgonia.Nodes{m.x})
	assert.ErrorContains(t, err, "graph: x has no value")
}
