package graph

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/op"
)

func config(preset mhc.Preset, n, channels int) Config {
	return Config{MHC: preset.Config(n), Channels: channels, Dtype: tensor.Float64, Rand: rand.NewPCG(1, 1)}
}

// shapes are the names and shapes of nodes, in order.
func shapes(nodes gorgonia.Nodes) (all []any) {
	for _, n := range nodes {
		all = append(all, n.Name(), []int(n.Shape()))
	}
	return all
}

func TestParametersAreNamedAndShaped(t *testing.T) {
	g := gorgonia.NewGraph()
	s, err := NewStack(g, "blocks", 2, config(mhc.Liger, 3, 5))
	require.NoError(t, err)
	assert.Equal(t, []any{
		"blocks.0.phi", []int{15, 15}, "blocks.0.b", []int{15}, "blocks.0.alpha", []int{3},
		"blocks.1.phi", []int{15, 15}, "blocks.1.b", []int{15}, "blocks.1.alpha", []int{3},
		"blocks.head.phi", []int{15, 3}, "blocks.head.b", []int{3}, "blocks.head.alpha", []int{1},
	}, shapes(s.Learnables()))
	assert.Equal(t, "blocks.1", s.Layers()[1].Name())

	l, err := NewLayer(g, "own", config(mhc.DeepSeekV4, 2, 5))
	require.NoError(t, err)
	assert.Equal(t, []any{"own.phi", []int{8, 10}, "own.b", []int{8}, "own.alpha", []int{3}}, shapes(l.Learnables()))
	h, err := NewHead(g, "out", config(mhc.DeepSeekV4, 2, 5))
	require.NoError(t, err)
	assert.Equal(t, []any{"out.phi", []int{2, 10}, "out.b", []int{2}, "out.alpha", []int{1}}, shapes(h.Learnables()))
}

func TestTheStartOfParameters(t *testing.T) {
	logit3 := math.Log(1.0 / 2)
	for _, c := range []struct {
		init             Init
		n                int
		b, alpha         []float64
		headB, headAlpha []float64
	}{
		{init: Residual, n: 3, b: []float64{logit3, logit3, logit3, 0, 0, 0, 10, 0, 0, 0, 10, 0, 0, 0, 10}, alpha: []float64{0.01, 0.01, 0.01},
			headB: []float64{logit3, logit3, logit3}, headAlpha: []float64{0.01}},
		{init: Residual, n: 1, b: []float64{10, 0, 10}, alpha: []float64{0.01, 0.01, 0.01}, headB: []float64{10}, headAlpha: []float64{0.01}},
		{init: Liger, n: 2, b: make([]float64, 8), alpha: []float64{1, 1, 1}, headB: []float64{0, 0}, headAlpha: []float64{1}},
	} {
		cfg := config(mhc.Liger, c.n, 400)
		cfg.Init = c.init
		s, err := NewStack(gorgonia.NewGraph(), "s", 1, cfg)
		require.NoError(t, err)
		values := make(map[string][]float64)
		for _, p := range s.Learnables() {
			values[p.Name()] = floats(t, p.Value())
		}
		assert.InDeltaSlice(t, c.b, values["s.0.b"], 1e-15)
		assert.Equal(t, c.alpha, values["s.0.alpha"])
		assert.InDeltaSlice(t, c.headB, values["s.head.b"], 1e-15)
		assert.Equal(t, c.headAlpha, values["s.head.alpha"])
		for _, phi := range []string{"s.0.phi", "s.head.phi"} {
			var sum, squares float64
			for _, v := range values[phi] {
				sum += v
				squares += v * v
			}
			n := float64(len(values[phi]))
			// Within five standard errors of mean and deviation.
			assert.InDelta(t, 0, sum/n, 5*0.02/math.Sqrt(n), phi)
			assert.InDelta(t, 0.02, math.Sqrt(squares/n), 5*0.02/math.Sqrt(2*n), phi)
		}
	}
}

// The same seed gives the same model, in float32 rounded once.
func TestTheSeedDecidesTheModel(t *testing.T) {
	build := func(dt tensor.Dtype, seed uint64) []float64 {
		cfg := config(mhc.Liger, 2, 3)
		cfg.Dtype, cfg.Rand = dt, rand.NewPCG(seed, 0)
		s, err := NewStack(gorgonia.NewGraph(), "s", 2, cfg)
		require.NoError(t, err)
		var all []float64
		for _, p := range s.Learnables() {
			all = append(all, floats(t, p.Value())...)
		}
		return all
	}
	double := build(tensor.Float64, 1)
	assert.Equal(t, double, build(tensor.Float64, 1))
	assert.NotEqual(t, double, build(tensor.Float64, 2))
	for i, v := range build(tensor.Float32, 1) {
		assert.Equal(t, float64(float32(double[i])), v)
	}
	assert.Equal(t, build(tensor.Float32, 1), build(tensor.Dtype{}, 1), "float32 is the default")
}

// At the start a stack is a plain residual network: out = x + sum of what its
// functions return.
func TestAStackStartsAsAResidualNetwork(t *testing.T) {
	for _, preset := range mhc.Presets {
		for _, n := range []int{1, 2, 4, 7} {
			g := gorgonia.NewGraph()
			cfg := config(preset, n, 6)
			s, err := NewStack(g, "s", 2, cfg)
			require.NoError(t, err)
			x := newParameter(g, "x", tensor.Float64, []float64{1, -2, 3, 0.5, -0.25, 0, 2, 2, -1, 4, 0, 1}, 2, 6)
			h, err := s.In(x)
			require.NoError(t, err)
			for _, l := range s.Layers() {
				h, err = l.Apply(h, gorgonia.Tanh)
				require.NoError(t, err)
			}
			out, err := s.Out(h)
			require.NoError(t, err)
			vm := gorgonia.NewTapeMachine(g)
			require.NoError(t, vm.RunAll())
			want := make([]float64, 12)
			for i, v := range floats(t, x.Value()) {
				v += math.Tanh(v)
				want[i] = v + math.Tanh(v)
			}
			assert.InDeltaSlice(t, want, floats(t, out.Value()), 0.05, "%v, n = %d", preset, n)
			require.NoError(t, vm.Close())
		}
	}
}

func TestConfigRefuses(t *testing.T) {
	for _, c := range []struct {
		want   string
		change func(*Config)
	}{
		{"Streams is 0, want 1 or more", func(c *Config) { c.MHC.Streams = 0 }},
		{"Streams is -3, want 1 or more", func(c *Config) { c.MHC.Streams = -3 }},
		{"Channels is 0, want 1 or more", func(c *Config) { c.Channels = 0 }},
		{"phi of 2 streams of 9223372036854775807 channels has more than 2^40 numbers", func(c *Config) { c.Channels = math.MaxInt }},
		{"phi of 9223372036854775807 streams of 3 channels has more than 2^40 numbers", func(c *Config) { c.MHC.Streams = math.MaxInt }},
		{"Dtype is int, want float32 or float64", func(c *Config) { c.Dtype = tensor.Int }},
		{"Dtype is BFloat16, want float32 or float64", func(c *Config) { c.Dtype = op.BFloat16 }},
		{"Init is Init(5), want residual or liger", func(c *Config) { c.Init = 5 }},
		{"Rand is nil", func(c *Config) { c.Rand = nil }},
	} {
		cfg := config(mhc.Liger, 2, 3)
		c.change(&cfg)
		g := gorgonia.NewGraph()
		_, err := NewLayer(g, "l", cfg)
		assert.ErrorContains(t, err, "layer l: ")
		assert.ErrorContains(t, err, c.want)
		_, err = NewHead(g, "h", cfg)
		assert.ErrorContains(t, err, c.want)
		_, err = NewStack(g, "s", 1, cfg)
		assert.ErrorContains(t, err, c.want)
		assert.Empty(t, g.AllNodes())
	}
	cfg := config(mhc.Liger, 2, 3)
	_, err := NewLayer(nil, "l", cfg)
	assert.EqualError(t, err, "layer l: graph: the graph is nil")
	_, err = NewStack(gorgonia.NewGraph(), "s", 0, cfg)
	assert.EqualError(t, err, "stack s: graph: 0 layers, want 1 or more")
}

// Gorgonia would make two input nodes of one name one node, or let names be
// ambiguous.
func TestNamesMustBeNew(t *testing.T) {
	g := gorgonia.NewGraph()
	cfg := config(mhc.Liger, 2, 3)
	_, err := NewLayer(g, "l", cfg)
	require.NoError(t, err)
	nodes := len(g.AllNodes())
	_, err = NewLayer(g, "l", cfg)
	assert.EqualError(t, err, "layer l: graph: the graph has a node named l.phi already")
	gorgonia.NewScalar(g, tensor.Float64, gorgonia.WithName("m.alpha"))
	_, err = NewLayer(g, "m", cfg)
	assert.EqualError(t, err, "layer m: graph: the graph has a node named m.alpha already")
	assert.Len(t, g.AllNodes(), nodes+1)
	_, err = NewLayer(gorgonia.NewGraph(), "l", cfg)
	assert.NoError(t, err, "another graph")
}

func TestApplyPassesErrorsOn(t *testing.T) {
	g := gorgonia.NewGraph()
	s, err := NewStack(g, "s", 1, config(mhc.Liger, 2, 3))
	require.NoError(t, err)
	l := s.Layers()[0]
	x := gorgonia.NewTensor(g, tensor.Float64, 3, gorgonia.WithName("x"), gorgonia.WithShape(4, 2, 3))
	identity := func(n *gorgonia.Node) (*gorgonia.Node, error) { return n, nil }
	for _, c := range []struct {
		want string
		do   func() (*gorgonia.Node, error)
	}{
		{"layer s.0: mhc.Coeffs: x is a nil node", func() (*gorgonia.Node, error) { return l.Apply(nil, identity) }},
		{"layer s.0: graph: f is nil", func() (*gorgonia.Node, error) { return l.Apply(x, nil) }},
		{"layer s.0: graph: f returned a nil node", func() (*gorgonia.Node, error) {
			return l.Apply(x, func(*gorgonia.Node) (*gorgonia.Node, error) { return nil, nil })
		}},
		{"layer s.0: " + assert.AnError.Error(), func() (*gorgonia.Node, error) {
			return l.Apply(x, func(*gorgonia.Node) (*gorgonia.Node, error) { return nil, assert.AnError })
		}},
		{"layer s.0: mhc.PostRes", func() (*gorgonia.Node, error) {
			return l.Apply(x, func(*gorgonia.Node) (*gorgonia.Node, error) { return x, nil })
		}},
		{"stack s: mhc.Streams", func() (*gorgonia.Node, error) { return s.In(nil) }},
		{"head s.head: mhc.Head", func() (*gorgonia.Node, error) { return s.Out(nil) }},
	} {
		n, err := c.do()
		require.ErrorContains(t, err, c.want)
		assert.Nil(t, n)
	}
	assert.Empty(t, l.Mixing())
	for range 2 {
		x, err = l.Apply(x, identity)
		require.NoError(t, err)
	}
	assert.Len(t, l.Mixing(), 2, "one for each application")
	assert.True(t, slices.Equal(l.Mixing()[0].Shape(), tensor.Shape{4, 2, 2}))
}
