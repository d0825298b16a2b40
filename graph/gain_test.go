package graph

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
)

func TestAmaxGain(t *testing.T) {
	// Two tokens of two streams, two layers.
	first := []float64{
		1, 2, 3, 4, // rows 3, 7; columns 4, 6
		0, -1, 1, 0,
	}
	second := []float64{
		0, 1, 1, 0,
		2, 0, 0, -5,
	}
	each, stack, err := AmaxGain([][]float64{first, second}, 2, mhc.ApplyRows)
	require.NoError(t, err)
	assert.Equal(t, []Gain{{(7 + 1) / 2.0, (6 + 1) / 2.0}, {(1 + 5) / 2.0, (1 + 5) / 2.0}}, each)
	// second * first: [3 4; 1 2], then [0 -2; -5 0].
	assert.Equal(t, Gain{(7 + 5) / 2.0, (6 + 5) / 2.0}, stack)

	// Applied transposed, rows and columns change places, and the product is
	// second^T * first^T: [2 4; 1 3], then [0 2; 5 0].
	each, stack, err = AmaxGain([][]float64{first, second}, 2, mhc.ApplyTransposed)
	require.NoError(t, err)
	assert.Equal(t, Gain{(6 + 1) / 2.0, (7 + 1) / 2.0}, each[0])
	assert.Equal(t, Gain{(6 + 5) / 2.0, (7 + 5) / 2.0}, stack)

	// One stream, one layer, float32.
	each, stack, err = AmaxGain([][]float32{{-2, 4}}, 1, mhc.ApplyRows)
	require.NoError(t, err)
	assert.Equal(t, []Gain{{3, 3}}, each)
	assert.Equal(t, Gain{3, 3}, stack)
}

func TestAmaxGainRefuses(t *testing.T) {
	for _, c := range []struct {
		want   string
		layers [][]float64
		n      int
	}{
		{"graph: n is 0, want 1 or more", [][]float64{{1}}, 0},
		{"graph: there are no layers", nil, 1},
		{"graph: h_res of layer 0 has 0 numbers", [][]float64{{}}, 1},
		{"graph: h_res of layer 0 has 5 numbers, want tokens * n * n with n = 2", [][]float64{make([]float64, 5)}, 2},
		{"graph: h_res of layer 0 has 1 numbers", [][]float64{{1}}, 1 << 32}, // n*n is 0 in 64 bits
		{"graph: h_res of layer 1 has 8 numbers", [][]float64{make([]float64, 4), make([]float64, 8)}, 2},
	} {
		_, _, err := AmaxGain(c.layers, c.n, mhc.ApplyRows)
		assert.ErrorContains(t, err, c.want)
	}
}

// The gain of a run equals that of the values of h_res in it, and is near 1 for
// mHC.
func TestWatchGain(t *testing.T) {
	for _, preset := range mhc.Presets {
		m := newTiny(t, preset, tensor.Float64, 1)
		w, err := m.stack.WatchGain()
		require.NoError(t, err)
		_, _, err = w.Gain()
		assert.ErrorContains(t, err, "h_res of layer 0 has no value: has the graph run?")
		var hres [2]gorgonia.Value
		for i, l := range m.stack.Layers() {
			gorgonia.Read(l.Mixing()[0], &hres[i])
		}
		tr := newTestTrainer(t, m, WithSolver(NewAdamW(0.05)))
		var last Gain
		for step := 1; step <= 3; step++ {
			require.NoError(t, tr.Run(t.Context(), step, m.numbered(5)))
			each, stack, err := w.Gain()
			require.NoError(t, err)
			wantEach, wantStack, err := AmaxGain([][]float64{floats(t, hres[0]), floats(t, hres[1])}, 3, preset.Config(3).Apply)
			require.NoError(t, err)
			assert.Equal(t, wantEach, each)
			assert.Equal(t, wantStack, stack)
			assert.InDelta(t, 1, stack.Forward, 0.1)
			assert.InDelta(t, 1, stack.Backward, 0.1)
			assert.NotEqual(t, last, stack, "another step, another gain")
			last = stack
		}
	}
}

func TestWatchGainRefuses(t *testing.T) {
	g := gorgonia.NewGraph()
	node := func(name string, dt tensor.Dtype, shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, dt, len(shape), gorgonia.WithName(name), gorgonia.WithShape(shape...))
	}
	good := node("good", tensor.Float32, 5, 2, 2)
	for _, c := range []struct {
		want string
		hres gorgonia.Nodes
	}{
		{"graph: there are no layers", nil},
		{"graph: h_res of layer 1 is nil", gorgonia.Nodes{good, nil}},
		{"graph: h_res of layer 0 has shape (5, 2, 3), want [..., n, n]", gorgonia.Nodes{node("oblong", tensor.Float32, 5, 2, 3)}},
		{"graph: h_res of layer 0 has shape (5), want [..., n, n]", gorgonia.Nodes{node("flat", tensor.Float32, 5)}},
		{"graph: h_res of layer 1 has shape (4, 2, 2)", gorgonia.Nodes{good, node("fewer", tensor.Float32, 4, 2, 2)}},
		{"graph: h_res of layer 1 is float64, want float32 or float64, like every layer", gorgonia.Nodes{good, node("wide", tensor.Float64, 5, 2, 2)}},
	} {
		nodes := len(g.AllNodes())
		_, err := WatchGain(mhc.ApplyRows, c.hres...)
		assert.ErrorContains(t, err, c.want)
		assert.Len(t, g.AllNodes(), nodes, "statements added")
	}
	s, err := NewStack(g, "s", 1, Config{MHC: mhc.Liger.Config(2), Channels: 3, Rand: rand.NewPCG(1, 1)})
	require.NoError(t, err)
	_, err = s.WatchGain()
	assert.EqualError(t, err, "graph: there are no layers to take the gain of", "none is applied")
}
