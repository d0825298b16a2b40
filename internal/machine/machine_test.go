package machine_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/internal/machine"
)

// quadratic is loss = sum((w * x)^2) and the product w * x by element.
func quadratic(w, x []float64) machine.Program {
	g := gorgonia.NewGraph()
	node := func(name string, v []float64) *gorgonia.Node {
		return gorgonia.NewVector(g, gorgonia.Float64, gorgonia.WithName(name), gorgonia.WithShape(len(v)),
			gorgonia.WithValue(tensor.New(tensor.WithBacking(v))))
	}
	wn := node("w", w)
	y := gorgonia.Must(gorgonia.HadamardProd(wn, node("x", x)))
	return machine.Program{
		Graph: g, Outputs: gorgonia.Nodes{y}, Inputs: gorgonia.Nodes{wn},
		Loss: gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(y)))),
	}
}

// Runs follow one another on the values that the inputs have by then, and
// gradients do not add up.
func TestRepeatedRuns(t *testing.T) {
	for _, kind := range machine.Kinds {
		t.Run(kind.String(), func(t *testing.T) {
			w, x := []float64{1, -2, 3}, []float64{2, 0.5, 1}
			m, err := machine.New(kind, quadratic(w, x))
			require.NoError(t, err)
			defer m.Close()
			for range 3 {
				var loss float64
				var y, grad []float64
				for i := range w {
					y = append(y, w[i]*x[i])
					grad = append(grad, 2*w[i]*x[i]*x[i])
					loss += y[i] * y[i]
				}
				r, err := m.Run()
				require.NoError(t, err)
				assert.Equal(t, y, r.Outputs[0].Data())
				assert.Equal(t, loss, r.Loss.Data())
				assert.Equal(t, grad, r.Gradients[0].Data())
				for i := range w {
					w[i] -= 0.125 * grad[i]
				}
			}
		})
	}
}

func TestForwardAlone(t *testing.T) {
	for _, kind := range machine.Kinds {
		p := quadratic([]float64{1, 2}, []float64{3, 4})
		p.Loss, p.Inputs = nil, nil
		m, err := machine.New(kind, p)
		require.NoError(t, err)
		for range 2 {
			r, err := m.Run()
			require.NoError(t, err)
			assert.Equal(t, []float64{3, 8}, r.Outputs[0].Data())
			assert.Nil(t, r.Loss)
			assert.Empty(t, r.Gradients)
		}
		assert.NoError(t, m.Close())
	}
}

func TestErrors(t *testing.T) {
	p := quadratic([]float64{1, 2}, []float64{3, 4})
	p.Loss = p.Outputs[0]
	_, err := machine.New(machine.Tape, p)
	assert.ErrorContains(t, err, "Expected Cost to be a scalar")
	assert.Equal(t, []string{"tape", "lisp", "Kind(9)"}, []string{machine.Tape.String(), machine.Lisp.String(), machine.Kind(9).String()})
}
