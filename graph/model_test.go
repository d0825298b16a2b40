package graph

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
)

// tiny is a model of two mHC layers that learns to multiply its input by a fixed
// matrix, on batches that are drawn anew for every step.
type tiny struct {
	g      *gorgonia.ExprGraph
	x, y   *gorgonia.Node
	loss   *gorgonia.Node
	stack  *Stack
	params gorgonia.Nodes
	dt     tensor.Dtype
}

const tinyTokens, tinyChannels = 6, 5

func newTiny(t testing.TB, preset mhc.Preset, dt tensor.Dtype, seed uint64) *tiny {
	t.Helper()
	m := &tiny{g: gorgonia.NewGraph(), dt: dt}
	m.x = gorgonia.NewMatrix(m.g, dt, gorgonia.WithShape(tinyTokens, tinyChannels), gorgonia.WithName("x"))
	m.y = gorgonia.NewMatrix(m.g, dt, gorgonia.WithShape(tinyTokens, tinyChannels), gorgonia.WithName("y"))
	source := rand.NewPCG(seed, 0)
	var err error
	m.stack, err = NewStack(m.g, "blocks", 2, Config{MHC: preset.Config(3), Channels: tinyChannels, Dtype: dt, Rand: source})
	require.NoError(t, err)
	h, err := m.stack.In(m.x)
	require.NoError(t, err)
	for i, l := range m.stack.Layers() {
		w := m.weight(t, []string{"w.0", "w.1"}[i], source, tinyChannels, tinyChannels)
		h, err = l.Apply(h, func(in *gorgonia.Node) (*gorgonia.Node, error) {
			out, err := gorgonia.Mul(in, w)
			if err != nil {
				return nil, err
			}
			return gorgonia.Tanh(out)
		})
		require.NoError(t, err)
	}
	h, err = m.stack.Out(h)
	require.NoError(t, err)
	scale := gorgonia.NewScalar(m.g, dt, gorgonia.WithName("scale"), gorgonia.WithValue(number(dt, 1)))
	h, err = gorgonia.Mul(h, scale)
	require.NoError(t, err)
	m.params = append(append(m.params, scale), m.stack.Learnables()...)
	d := gorgonia.Must(gorgonia.Sub(h, m.y))
	m.loss = gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(d))))
	return m
}

// number is v as a scalar of dtype dt.
func number(dt tensor.Dtype, v float64) any {
	if dt == tensor.Float32 {
		return float32(v)
	}
	return v
}

func (m *tiny) weight(t testing.TB, name string, source rand.Source, shape ...int) *gorgonia.Node {
	values := make([]float64, tensor.Shape(shape).TotalSize())
	for i := range values {
		values[i] = 0.3 * rand.New(source).NormFloat64()
	}
	n := newParameter(m.g, name, m.dt, values, shape...)
	m.params = append(m.params, n)
	return n
}

// drawn are batches drawn from source, one after the other.
func (m *tiny) drawn(source rand.Source) Batches {
	r := rand.New(source)
	return func(int) (Batch, error) {
		x := tensor.New(tensor.Of(m.dt), tensor.WithShape(tinyTokens, tinyChannels))
		y := tensor.New(tensor.Of(m.dt), tensor.WithShape(tinyTokens, tinyChannels))
		for i := range tinyTokens {
			row := make([]float64, tinyChannels)
			for j := range row {
				row[j] = r.NormFloat64()
			}
			for j := range row {
				set(x, i*tinyChannels+j, row[j])
				set(y, i*tinyChannels+j, 0.5*row[j]-0.5*row[(j+1)%tinyChannels])
			}
		}
		return Batch{Inputs: map[string]gorgonia.Value{"x": x, "y": y}, Tokens: tinyTokens}, nil
	}
}

// numbered are batches that depend on the step alone.
func (m *tiny) numbered(seed uint64) Batches {
	return func(step int) (Batch, error) { return m.drawn(rand.NewPCG(seed, uint64(step)))(step) }
}

func set(t *tensor.Dense, i int, v float64) {
	if t.Dtype() == tensor.Float32 {
		t.Float32s()[i] = float32(v)
	} else {
		t.Float64s()[i] = v
	}
}
