package graph

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// weight is a parameter without a graph.
type weight struct {
	name        string
	value, grad gorgonia.Value
}

func (w *weight) Name() string                  { return w.name }
func (w *weight) Value() gorgonia.Value         { return w.value }
func (w *weight) Grad() (gorgonia.Value, error) { return w.grad, nil }

func dense(values []float64, dt tensor.Dtype, shape ...int) *tensor.Dense {
	t := tensor.New(tensor.Of(dt), tensor.WithShape(shape...))
	for i, v := range values {
		set(t, i, v)
	}
	return t
}

func floats(t testing.TB, v gorgonia.Value) []float64 {
	t.Helper()
	data, err := memory("value", v)
	require.NoError(t, err)
	if data, ok := data.([]float64); ok {
		return data
	}
	var out []float64
	for _, x := range data.([]float32) {
		out = append(out, float64(x))
	}
	return out
}

// The first step from zero moments is rate * g / (|g| + eps), after the decay.
func TestAdamWFirstStepInClosedForm(t *testing.T) {
	for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		tol := map[tensor.Dtype]float64{tensor.Float32: 1e-6, tensor.Float64: 1e-15}[dt]
		matrix := &weight{"matrix", dense([]float64{1, -2, 3, 4}, dt, 2, 2), dense([]float64{0.5, -0.25, 0, 1e-4}, dt, 2, 2)}
		vector := &weight{"vector", dense([]float64{1}, dt, 1), dense([]float64{-3}, dt, 1)}
		var scalar *weight
		if dt == tensor.Float32 {
			scalar = &weight{"scalar", gorgonia.NewF32(2), gorgonia.NewF32(7)}
		} else {
			scalar = &weight{"scalar", gorgonia.NewF64(2), gorgonia.NewF64(7)}
		}
		model := []gorgonia.ValueGrad{matrix, vector, scalar}
		a := NewAdamW(0.1)
		a.WeightDecay, a.Eps = 0.2, 1e-4
		require.NoError(t, a.Step(model))
		// Decay of the matrix alone: 1 - 0.1*0.2 = 0.98.
		assert.InDeltaSlice(t, []float64{0.98 - 0.1*0.5/0.5001, -1.96 + 0.1*0.25/0.2501, 2.94, 3.92 - 0.1*0.5}, floats(t, matrix.value), tol)
		assert.InDeltaSlice(t, []float64{1 + 0.1*3/3.0001}, floats(t, vector.value), tol)
		assert.InDeltaSlice(t, []float64{2 - 0.1*7/7.0001}, floats(t, scalar.value), tol)
		for _, w := range []*weight{matrix, vector, scalar} {
			for _, g := range floats(t, w.grad) {
				assert.Zero(t, g, "the gradient of %s", w.name)
			}
		}
	}
}

// Several steps against the algorithm as the paper writes it, with one parameter
// larger than what one goroutine takes.
func TestAdamWFollowsTheAlgorithm(t *testing.T) {
	const n = adamBlock + 7
	r := rand.New(rand.NewPCG(1, 1))
	w, m, v := make([]float64, n), make([]float64, n), make([]float64, n)
	for i := range w {
		w[i] = r.NormFloat64()
	}
	p := &weight{"w", dense(w, tensor.Float64, n, 1), dense(make([]float64, n), tensor.Float64, n, 1)}
	a := NewAdamW(0)
	a.Beta1, a.Beta2, a.Eps, a.WeightDecay = 0.8, 0.95, 1e-3, 0.1
	for step := 1; step <= 5; step++ {
		rate := 0.01 * float64(step)
		a.SetLearningRate(rate)
		g := p.grad.(*tensor.Dense).Float64s()
		for i := range g {
			g[i] = r.NormFloat64()
			m[i] = 0.8*m[i] + 0.2*g[i]
			v[i] = 0.95*v[i] + 0.05*g[i]*g[i]
			mhat, vhat := m[i]/(1-math.Pow(0.8, float64(step))), v[i]/(1-math.Pow(0.95, float64(step)))
			w[i] -= rate*0.1*w[i] + rate*mhat/(math.Sqrt(vhat)+1e-3)
		}
		require.NoError(t, a.Step([]gorgonia.ValueGrad{p}))
		assert.InDeltaSlice(t, w, p.value.(*tensor.Dense).Float64s(), 1e-14)
	}
}

func TestAdamWStateContinuesToTheLastBit(t *testing.T) {
	run := func(stop int) []float64 {
		p := &weight{"w", dense([]float64{1, 2, 3}, tensor.Float32, 3), dense(make([]float64, 3), tensor.Float32, 3)}
		model := []gorgonia.ValueGrad{p}
		a := NewAdamW(0.1)
		for step := range 20 {
			if step == stop {
				s := a.State()
				require.Equal(t, stop, s.Steps)
				a = NewAdamW(0.1)
				require.NoError(t, a.SetState(s, model))
			}
			copy(p.grad.(*tensor.Dense).Float32s(), []float32{float32(step) - 7, 0.1, -2})
			require.NoError(t, a.Step(model))
		}
		return floats(t, p.value)
	}
	want := run(-1)
	assert.Equal(t, want, run(7))
	assert.Equal(t, want, run(0), "the state of a solver that has taken no step")
}

func TestAdamWStateIsACopy(t *testing.T) {
	p := &weight{"w", dense([]float64{1}, tensor.Float64, 1), dense([]float64{1}, tensor.Float64, 1)}
	a := NewAdamW(0.1)
	require.NoError(t, a.Step([]gorgonia.ValueGrad{p}))
	s := a.State()
	require.NoError(t, a.Step([]gorgonia.ValueGrad{p}))
	assert.InDelta(t, 0.1, s.Tensors["m/w"].Float64s()[0], 1e-16)
}

func TestAdamWRefusesAndChangesNothing(t *testing.T) {
	good := func() *weight {
		return &weight{"good", dense([]float64{1}, tensor.Float64, 1), dense([]float64{1}, tensor.Float64, 1)}
	}
	bad := func(name string, value, grad gorgonia.Value) []gorgonia.ValueGrad {
		return []gorgonia.ValueGrad{&weight{name, value, grad}}
	}
	one := dense([]float64{1}, tensor.Float64, 1)
	square := dense([]float64{1, 2, 3, 4}, tensor.Float64, 2, 2)
	turned := square.Clone().(*tensor.Dense)
	require.NoError(t, turned.T())
	for _, c := range []struct {
		want   string
		rest   []gorgonia.ValueGrad
		change func(*AdamW)
	}{
		{want: "LearningRate is -1, want a finite number of 0 or more", change: func(a *AdamW) { a.LearningRate = -1 }},
		{want: "LearningRate is NaN", change: func(a *AdamW) { a.LearningRate = math.NaN() }},
		{want: "Beta1 is 1, want a number in [0, 1)", change: func(a *AdamW) { a.Beta1 = 1 }},
		{want: "Beta2 is -0.1", change: func(a *AdamW) { a.Beta2 = -0.1 }},
		{want: "Eps is +Inf", change: func(a *AdamW) { a.Eps = math.Inf(1) }},
		{want: "WeightDecay is -2", change: func(a *AdamW) { a.WeightDecay = -2 }},
		{want: "parameter 1 of 2 has no name", rest: bad("", one, one)},
		{want: "two parameters are named good", rest: bad("good", one, one)},
		{want: "odd is int, want float32 or float64", rest: bad("odd", tensor.New(tensor.Of(tensor.Int), tensor.WithShape(1)), one)},
		{want: "odd has no value", rest: bad("odd", nil, one)},
		{want: "the gradient of odd has no value", rest: bad("odd", one, nil)},
		{want: "odd is a *gorgonia.I, want a *tensor.Dense or a scalar", rest: bad("odd", gorgonia.NewI(1), one)},
		{want: "odd is not contiguous in row-major order", rest: bad("odd", turned, square)},
		{want: "the gradient of odd is float32 (1), want float64 (1) like its value", rest: bad("odd", one, dense([]float64{1}, tensor.Float32, 1))},
		{want: "the gradient of odd is float64 (2, 2), want float64 (1)", rest: bad("odd", one, square)},
	} {
		t.Run(c.want, func(t *testing.T) {
			a, g := NewAdamW(0.1), good()
			if c.change != nil {
				c.change(a)
			}
			assert.ErrorContains(t, a.Step(append([]gorgonia.ValueGrad{g}, c.rest...)), c.want)
			assert.Equal(t, []float64{1}, floats(t, g.value))
			assert.Equal(t, []float64{1}, floats(t, g.grad))
			assert.Zero(t, a.State().Steps)
			assert.Empty(t, a.State().Tensors)
		})
	}
	a, g := NewAdamW(0.1), good()
	require.NoError(t, a.Step([]gorgonia.ValueGrad{g}))
	g.value, g.grad = square, square
	assert.ErrorContains(t, a.Step([]gorgonia.ValueGrad{g}), "good is float64 (2, 2), AdamW has seen it as float64 (1)")
}

func TestAdamWRefusesForeignState(t *testing.T) {
	model := []gorgonia.ValueGrad{&weight{"w", dense([]float64{1}, tensor.Float64, 1), dense([]float64{1}, tensor.Float64, 1)}}
	one := func() *tensor.Dense { return dense([]float64{1}, tensor.Float64, 1) }
	for _, c := range []struct {
		want  string
		state SolverState
	}{
		{"has -1 steps", SolverState{Steps: -1}},
		{"has no tensor", SolverState{Steps: 1}},
		{"has no tensor v/w", SolverState{Steps: 1, Tensors: State{"m/w": one()}}},
		{"tensor m/w is float32, want float64", SolverState{Steps: 1, Tensors: State{"m/w": dense([]float64{1}, tensor.Float32, 1), "v/w": one()}}},
		{"tensor v/w has shape (2), want (1)", SolverState{Steps: 1, Tensors: State{"m/w": one(), "v/w": dense([]float64{1, 2}, tensor.Float64, 2)}}},
		{"tensor m/other, which belongs to no parameter", SolverState{Steps: 1, Tensors: State{"m/w": one(), "v/w": one(), "m/other": one()}}},
		{"tensor m/w, which belongs to no parameter", SolverState{Tensors: State{"m/w": one()}}},
	} {
		t.Run(c.want, func(t *testing.T) {
			a := NewAdamW(0.1)
			require.NoError(t, a.Step(model))
			before := a.State()
			assert.ErrorContains(t, a.SetState(c.state, model), c.want)
			assert.Equal(t, before, a.State())
		})
	}
}

func TestAdamWRefusesStateForAParameterWithoutValue(t *testing.T) {
	err := NewAdamW(1).SetState(SolverState{Steps: 1}, []gorgonia.ValueGrad{&weight{name: "w"}})
	assert.EqualError(t, err, "graph: w has no value")
	err = NewAdamW(1).SetState(SolverState{Steps: 1}, []gorgonia.ValueGrad{nil})
	assert.EqualError(t, err, "graph: parameter 0 is nil")
}

func BenchmarkAdamW(b *testing.B) {
	const n = 1 << 20
	p := &weight{"w", dense(nil, tensor.Float32, n, 1), dense(nil, tensor.Float32, n, 1)}
	model := []gorgonia.ValueGrad{p}
	a := NewAdamW(1e-3)
	b.SetBytes(n * 4 * 8) // reads w, g, m, v and writes them
	for b.Loop() {
		if err := a.Step(model); err != nil {
			b.Fatal(err)
		}
	}
}
