package graph

import (
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/op"
)

// single makes a stack of one layer of 2 streams of 3 channels (K = 6, M = 8).
func single(t testing.TB, preset mhc.Preset, dt tensor.Dtype, seed uint64) *Stack {
	t.Helper()
	s, err := NewStack(gorgonia.NewGraph(), "s", 1, Config{MHC: preset.Config(2), Channels: 3, Dtype: dt, Rand: rand.NewPCG(seed, 0)})
	require.NoError(t, err)
	return s
}

func values(t testing.TB, params gorgonia.Nodes) [][]float64 {
	t.Helper()
	var all [][]float64
	for _, p := range params {
		all = append(all, append([]float64(nil), floats(t, p.Value())...))
	}
	return all
}

var deepSeek = DeepSeekNames{Fn: "layers.0.hc_attn_fn", Base: "layers.0.hc_attn_base", Scale: "layers.0.hc_attn_scale"}

// moduleState is a module's state with numbers that say where they belong: phi
// [k, m] is 100 k + m.
func moduleState(dt tensor.Dtype) State {
	phi, b := make([]float64, 48), make([]float64, 8)
	for i := range phi {
		phi[i] = float64(100*(i/8) + i%8)
	}
	for i := range b {
		b[i] = float64(-i)
	}
	return State{
		"m.phi": dense(phi, dt, 6, 8), "m.b": dense(b, dt, 8),
		"m.alpha_pre": dense([]float64{0.25}, dt, 1), "m.alpha_post": tensor.New(tensor.FromScalar(0.5)), "m.alpha_res": dense([]float64{0.75}, dt, 1),
		"m.layer.weight": dense([]float64{1}, dt, 1),
	}
}

func TestModuleGoesToWhereItBelongs(t *testing.T) {
	for _, preset := range []mhc.Preset{mhc.Liger, mhc.DeepSeekV4} {
		l := single(t, preset, tensor.Float32, 1).Layers()[0]
		require.NoError(t, l.LoadModule(moduleState(tensor.Float64), "m."))
		got := values(t, l.Learnables())
		for i, v := range got[0] {
			k, m := i/8, i%8
			if preset == mhc.DeepSeekV4 { // phi is [M, K]
				k, m = i%6, i/6
			}
			assert.Equal(t, float64(100*k+m), v)
		}
		assert.Equal(t, []float64{0, -1, -2, -3, -4, -5, -6, -7}, got[1])
		assert.Equal(t, []float64{0.25, 0.5, 0.75}, got[2])
	}
}

func TestExchangeRoundTrips(t *testing.T) {
	for _, preset := range []mhc.Preset{mhc.Liger, mhc.DeepSeekV4} {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			from, to := single(t, preset, dt, 1), single(t, preset, dt, 2)
			require.NotEqual(t, values(t, from.Learnables()), values(t, to.Learnables()))
			state := State{}
			require.NoError(t, from.Layers()[0].SaveModule(state, "model.mhc."))
			head := DeepSeekNames{"fn", "base", "scale"}
			require.NoError(t, from.Head().SaveDeepSeek(state, head))
			assert.Equal(t, []string{"base", "fn", "model.mhc.alpha_post", "model.mhc.alpha_pre", "model.mhc.alpha_res", "model.mhc.b", "model.mhc.phi", "scale"},
				slices.Sorted(maps.Keys(state)))
			assert.Equal(t, []int{6, 8}, []int(state["model.mhc.phi"].Shape()))
			assert.Empty(t, state["model.mhc.alpha_pre"].Shape())
			assert.Equal(t, dt, state["model.mhc.phi"].Dtype())
			assert.Equal(t, []int{2, 6}, []int(state["fn"].Shape()))
			assert.Equal(t, tensor.Float32, state["fn"].Dtype())

			path := filepath.Join(t.TempDir(), "model.safetensors")
			require.NoError(t, WriteState(path, state, nil))
			state, _, err := ReadState(path, nil)
			require.NoError(t, err)
			require.NoError(t, to.Layers()[0].LoadModule(state, "model.mhc."))
			require.NoError(t, to.Head().LoadDeepSeek(state, head))
			assert.Equal(t, values(t, from.Layers()[0].Learnables()), values(t, to.Layers()[0].Learnables()))
			want, got := values(t, from.Head().Learnables()), values(t, to.Head().Learnables())
			for i := range want {
				for j, v := range want[i] {
					assert.Equal(t, float64(float32(v)), got[i][j])
				}
			}

			third := single(t, preset, dt, 3)
			require.NoError(t, from.Layers()[0].SaveDeepSeek(state, deepSeek))
			assert.Equal(t, []int{8, 6}, []int(state[deepSeek.Fn].Shape()))
			assert.Equal(t, []int{8}, []int(state[deepSeek.Base].Shape()))
			assert.Equal(t, []int{3}, []int(state[deepSeek.Scale].Shape()))
			require.NoError(t, third.Layers()[0].LoadDeepSeek(state, deepSeek))
			for i, p := range values(t, from.Layers()[0].Learnables()) {
				assert.InDeltaSlice(t, p, values(t, third.Layers()[0].Learnables())[i], 1e-7)
			}
		}
	}
}

// A published phi of 16 bits comes back with its own bits.
func TestSixteenBitModuleRoundTrip(t *testing.T) {
	for _, dt := range []tensor.Dtype{op.BFloat16, op.Float16} {
		state := moduleState(tensor.Float32)
		var err error
		state["m.phi"], err = Convert(state["m.phi"], dt)
		require.NoError(t, err)
		l := single(t, mhc.Liger, tensor.Float32, 1).Layers()[0]
		require.NoError(t, l.LoadModule(state, "m."))
		saved := State{}
		require.NoError(t, l.SaveModule(saved, "m."))
		back, err := Convert(saved["m.phi"], dt)
		require.NoError(t, err)
		assert.Equal(t, state["m.phi"].Raw, back.Raw)
	}
}

func TestExchangeRefusesAndChangesNothing(t *testing.T) {
	load := func(s *Stack, state State) error { return s.Layers()[0].LoadModule(state, "m.") }
	for _, c := range []struct {
		want   string
		change func(State)
	}{
		{"graph: there is no tensor m.phi", func(s State) { delete(s, "m.phi") }},
		{"graph: there is no tensor m.alpha_res", func(s State) { delete(s, "m.alpha_res") }},
		{"graph: tensor m.phi has shape (8, 6), want (6, 8)", func(s State) { s["m.phi"] = transposed(s["m.phi"]) }},
		{"graph: tensor m.b has shape (3), want (8)", func(s State) { s["m.b"] = dense(nil, tensor.Float32, 3) }},
		{"graph: tensor m.b has shape (), want (8)", func(s State) { s["m.b"] = tensor.New(tensor.FromScalar(float32(1))) }},
		{"graph: tensor m.alpha_pre has shape (2), want (1)", func(s State) { s["m.alpha_pre"] = dense(nil, tensor.Float32, 2) }},
		{"tensor m.alpha_post: graph: a tensor of int64 cannot be converted", func(s State) {
			s["m.alpha_post"] = tensor.New(tensor.WithShape(1), tensor.WithBacking([]int64{1}))
		}},
	} {
		s := single(t, mhc.DeepSeekV4, tensor.Float32, 1)
		before := values(t, s.Learnables())
		state := moduleState(tensor.Float32)
		c.change(state)
		assert.ErrorContains(t, load(s, state), c.want)
		assert.Equal(t, before, values(t, s.Learnables()))
	}

	l := single(t, mhc.Liger, tensor.Float32, 1).Layers()[0]
	assert.EqualError(t, l.LoadDeepSeek(State{}, deepSeek), "graph: there is no tensor layers.0.hc_attn_fn")
	assert.EqualError(t, l.SaveModule(nil, ""), "graph: the state to save to is nil")
	state := State{}
	assert.EqualError(t, l.SaveDeepSeek(state, DeepSeekNames{"a", "a", "b"}), "graph: the names a, a and b are not distinct")
	assert.Empty(t, state)
}

func TestConvert(t *testing.T) {
	// Halfway between two BFloat16 (and, in float32, onto a tie by a first rounding).
	x := tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1 + 1.0/256 + 1e-12, -2.5, 1e300, math.NaN()}))
	b, err := Convert(x, op.BFloat16)
	require.NoError(t, err)
	assert.Equal(t, tensor.Shape{2, 2}, b.Shape())
	bits := b.Data().([]dtype.BFloat16)
	assert.Equal(t, []dtype.BFloat16{0x3f81, 0xc020, 0x7f80}, bits[:3])
	assert.True(t, math.IsNaN(float64(bits[3].Float32())))
	for _, mid := range []tensor.Dtype{tensor.Float32, tensor.Float64, op.BFloat16} {
		there, err := Convert(b, mid)
		require.NoError(t, err)
		back, err := Convert(there, op.BFloat16)
		require.NoError(t, err)
		assert.Equal(t, b.Raw, back.Raw, "by way of %v", mid)
	}
	_, err = Convert(nil, tensor.Float32)
	assert.ErrorContains(t, err, "graph: the tensor to convert is nil")
	_, err = Convert(new(tensor.Dense), tensor.Float32)
	assert.ErrorContains(t, err, "graph: the tensor to convert has no numbers")
	_, err = Convert(x, tensor.Dtype{})
	assert.ErrorContains(t, err, "graph: a tensor cannot be converted to ")
	_, err = Convert(x, tensor.Int)
	assert.EqualError(t, err, "graph: a tensor cannot be converted to int, want float32, float64, BFloat16 or Float16")
}
