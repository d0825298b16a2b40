package graph

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/op"
)

func newTestTrainer(t testing.TB, m *tiny, options ...TrainerOption) *Trainer {
	t.Helper()
	tr, err := NewTrainer(m.loss, m.params, options...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, tr.Close()) })
	return tr
}

// weights is a copy of every parameter.
func (m *tiny) weights(t testing.TB) map[string][]float64 {
	t.Helper()
	all := make(map[string][]float64)
	for _, p := range m.params {
		all[p.Name()] = append([]float64(nil), floats(t, p.Value())...)
	}
	return all
}

func TestTrainerLearns(t *testing.T) {
	for _, preset := range mhc.Presets {
		for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
			t.Run(preset.String()+"/"+dt.String(), func(t *testing.T) {
				m := newTiny(t, preset, dt, 1)
				var seen []Metrics
				tr := newTestTrainer(t, m, WithSolver(NewAdamW(0.02)), WithClipNorm(1), WithEval(50, 4, m.numbered(7)),
					WithCallback(func(m Metrics) error { seen = append(seen, m); return nil }))
				before, err := tr.Evaluate(t.Context(), 4, m.numbered(7))
				require.NoError(t, err)
				require.NoError(t, tr.Run(t.Context(), 150, m.numbered(5)))
				after, err := tr.Evaluate(t.Context(), 4, m.numbered(7))
				require.NoError(t, err)
				assert.Greater(t, before, 0.5)
				assert.Less(t, after, 0.02)

				require.Len(t, seen, 150)
				for i, s := range seen {
					assert.Equal(t, i+1, s.Step)
					assert.Equal(t, tinyTokens, s.Tokens)
					assert.Positive(t, s.GradNorm)
					assert.True(t, math.IsNaN(s.LearningRate), "a rate without a schedule")
					due := s.Step == 50 || s.Step == 100 || s.Step == 150
					assert.Equal(t, due, !math.IsNaN(s.Eval), "evaluation at step %d", s.Step)
				}
				assert.Equal(t, after, seen[149].Eval)
			})
		}
	}
}

// The trainer does what the loop does that a careful user of Gorgonia writes, to
// the last bit, with each of Gorgonia's solvers and this package's.
func TestTrainerEqualsALoopOfOnesOwn(t *testing.T) {
	for name, solver := range map[string]func() gorgonia.Solver{
		"vanilla":  func() gorgonia.Solver { return gorgonia.NewVanillaSolver(gorgonia.WithLearnRate(0.1)) },
		"momentum": func() gorgonia.Solver { return gorgonia.NewMomentum(gorgonia.WithLearnRate(0.01)) },
		"adam":     func() gorgonia.Solver { return gorgonia.NewAdamSolver(gorgonia.WithLearnRate(0.01)) },
		"rmsprop":  func() gorgonia.Solver { return gorgonia.NewRMSPropSolver(gorgonia.WithLearnRate(0.01)) },
		"adamw":    func() gorgonia.Solver { return NewAdamW(0.01) },
	} {
		t.Run(name, func(t *testing.T) {
			const steps = 8
			m := newTiny(t, mhc.Liger, tensor.Float64, 1)
			var got []float64
			tr := newTestTrainer(t, m, WithSolver(solver()), WithCallback(func(m Metrics) error { got = append(got, m.Loss); return nil }))
			require.NoError(t, tr.Run(t.Context(), steps, m.numbered(5)))

			own := newTiny(t, mhc.Liger, tensor.Float64, 1)
			_, err := gorgonia.Grad(own.loss, own.params...)
			require.NoError(t, err)
			vm := gorgonia.NewTapeMachine(own.g, gorgonia.BindDualValues(own.params...))
			defer vm.Close()
			s, batches := solver(), own.numbered(5)
			var want []float64
			for step := range steps {
				b, err := batches(step)
				require.NoError(t, err)
				require.NoError(t, gorgonia.Let(own.x, b.Inputs["x"]))
				require.NoError(t, gorgonia.Let(own.y, b.Inputs["y"]))
				require.NoError(t, vm.RunAll())
				want = append(want, floats(t, own.loss.Value())[0])
				require.NoError(t, s.Step(gorgonia.NodesToValueGrads(own.params)))
				vm.Reset()
			}
			assert.Equal(t, want, got)
			assert.Equal(t, own.weights(t), m.weights(t))
			assert.NotEqual(t, want[0], want[steps-1])
		})
	}
}

// Layers work on a LispMachine, with the same gradients.
func TestLayersOnALispMachine(t *testing.T) {
	m := newTiny(t, mhc.DeepSeekV4, tensor.Float64, 1)
	b, err := m.numbered(5)(0)
	require.NoError(t, err)
	require.NoError(t, gorgonia.Let(m.x, b.Inputs["x"]))
	require.NoError(t, gorgonia.Let(m.y, b.Inputs["y"]))
	vm := gorgonia.NewLispMachine(m.g)
	defer vm.Close()
	require.NoError(t, vm.RunAll())
	want := make(map[string][]float64)
	for _, p := range m.params {
		g, err := p.Grad()
		require.NoError(t, err)
		want[p.Name()] = floats(t, g)
	}

	tape := newTiny(t, mhc.DeepSeekV4, tensor.Float64, 1)
	var got map[string][]float64
	stop := errors.New("stop")
	tr := newTestTrainer(t, tape, WithSolver(solverFunc(func(model []gorgonia.ValueGrad) error {
		got = make(map[string][]float64)
		for _, p := range model {
			g, err := p.Grad()
			require.NoError(t, err)
			got[nameOf(p)] = append([]float64(nil), floats(t, g)...)
		}
		return stop
	})))
	assert.ErrorIs(t, tr.Run(t.Context(), 1, tape.numbered(5)), stop)
	for name := range want {
		assert.InDeltaSlice(t, want[name], got[name], 1e-12, name)
	}
}

// solverFunc is a function as a solver.
type solverFunc func([]gorgonia.ValueGrad) error

func (f solverFunc) Step(model []gorgonia.ValueGrad) error { return f(model) }

func TestClipNormScalesTheGradient(t *testing.T) {
	norms := func(clip float64) (reported, seen float64) {
		m := newTiny(t, mhc.Liger, tensor.Float64, 1)
		tr := newTestTrainer(t, m, WithClipNorm(clip),
			WithSolver(solverFunc(func(model []gorgonia.ValueGrad) error {
				for _, p := range model {
					g, err := p.Grad()
					require.NoError(t, err)
					for _, v := range floats(t, g) {
						seen += v * v
					}
				}
				return nil
			})),
			WithCallback(func(m Metrics) error { reported = m.GradNorm; return nil }))
		require.NoError(t, tr.Run(t.Context(), 1, m.numbered(5)))
		return reported, math.Sqrt(seen)
	}
	whole, seen := norms(0)
	assert.InDelta(t, whole, seen, 1e-14)
	reported, seen := norms(whole / 3)
	assert.Equal(t, whole, reported)
	assert.InDelta(t, whole/3, seen, 1e-14)
	_, seen = norms(whole * 3)
	assert.InDelta(t, whole, seen, 1e-14)
}

// A solver that leaves the gradients as they are does not make them pile up.
func TestGradientsDoNotAccumulate(t *testing.T) {
	m := newTiny(t, mhc.Liger, tensor.Float64, 1)
	var norms []float64
	tr := newTestTrainer(t, m, WithSolver(solverFunc(func([]gorgonia.ValueGrad) error { return nil })),
		WithCallback(func(m Metrics) error { norms = append(norms, m.GradNorm); return nil }))
	same := m.numbered(5)
	require.NoError(t, tr.Run(t.Context(), 3, func(int) (Batch, error) { return same(0) }))
	assert.Equal(t, norms[0], norms[1])
	assert.Equal(t, norms[0], norms[2])
}

func TestScheduleSetsTheRateOfEverySolver(t *testing.T) {
	for _, s := range []gorgonia.Solver{NewAdamW(9), gorgonia.NewVanillaSolver(), gorgonia.NewAdamSolver(), gorgonia.NewMomentum(),
		gorgonia.NewRMSPropSolver()} {
		m := newTiny(t, mhc.Liger, tensor.Float64, 1)
		before := m.weights(t)
		var rates []float64
		tr := newTestTrainer(t, m, WithSolver(s), WithSchedule(func(int) float64 { return 0 }),
			WithCallback(func(m Metrics) error { rates = append(rates, m.LearningRate); return nil }))
		require.NoError(t, tr.Run(t.Context(), 1, m.numbered(5)))
		assert.Equal(t, before, m.weights(t), "%T at a rate of 0", s)
		assert.Equal(t, []float64{0}, rates)
	}
	m := newTiny(t, mhc.Liger, tensor.Float64, 1)
	_, err := NewTrainer(m.loss, m.params, WithSolver(gorgonia.NewAdaGradSolver()), WithSchedule(Constant(1, 0)))
	assert.EqualError(t, err, "graph: a schedule is given and *gorgonia.AdaGradSolver takes no learning rate")

	tr := newTestTrainer(t, m, WithSchedule(func(step int) float64 { return 1 - 2*float64(step) }))
	assert.EqualError(t, tr.Run(t.Context(), 3, m.numbered(5)), "graph: step 2: the learning rate is -1, want a finite number of 0 or more")
}

// A loss or gradient that is not finite ends the run, names the step, and does
// not reach the weights.
func TestTrainerStopsBeforeNaN(t *testing.T) {
	for name, poison := range map[string]float64{"NaN": math.NaN(), "+Inf": math.Inf(1)} {
		m := newTiny(t, mhc.Liger, tensor.Float32, 1)
		var before map[string][]float64
		tr := newTestTrainer(t, m, WithCallback(func(Metrics) error { before = m.weights(t); return nil }))
		good := m.numbered(5)
		err := tr.Run(t.Context(), 10, func(step int) (Batch, error) {
			b, err := good(step)
			if step == 3 {
				b.Inputs["y"].(*tensor.Dense).Float32s()[4] = float32(poison)
			}
			return b, err
		})
		assert.EqualError(t, err, "graph: step 4: the loss is "+name+"; the weights are those of the step before")
		assert.Equal(t, before, m.weights(t))
		assert.Equal(t, 3, tr.Step())
		// The run goes on from there.
		require.NoError(t, tr.Run(t.Context(), 5, good))
		assert.Equal(t, 5, tr.Step())
	}
}

// The square root of 0 has a value and no gradient.
func TestTrainerStopsBeforeAnInfiniteGradient(t *testing.T) {
	g := gorgonia.NewGraph()
	w := newParameter(g, "w", tensor.Float64, []float64{0, 1}, 2)
	loss := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Sqrt(w))))
	tr, err := NewTrainer(loss, gorgonia.Nodes{w})
	require.NoError(t, err)
	defer tr.Close()
	err = tr.Run(t.Context(), 1, func(int) (Batch, error) { return Batch{}, nil })
	assert.EqualError(t, err, "graph: step 1: the gradient's norm is +Inf; the weights are those of the step before")
	assert.Equal(t, []float64{0, 1}, floats(t, w.Value()))
}

func TestTrainerPassesErrorsOn(t *testing.T) {
	m := newTiny(t, mhc.Liger, tensor.Float64, 1)
	broken := errors.New("broken")
	tr := newTestTrainer(t, m, WithCallback(func(m Metrics) error {
		if m.Step == 2 {
			return broken
		}
		return nil
	}))
	good := m.numbered(5)
	err := tr.Run(t.Context(), 5, good)
	assert.ErrorIs(t, err, broken)
	assert.ErrorContains(t, err, "callback after step 2")

	with := func(name string, v gorgonia.Value) Batches {
		return func(step int) (Batch, error) {
			b, err := good(step)
			b.Inputs[name] = v
			return b, err
		}
	}
	for _, c := range []struct {
		batches Batches
		want    string
	}{
		{nil, "graph: batches is nil"},
		{func(int) (Batch, error) { return Batch{}, broken }, "graph: step 3: batch: broken"},
		{with("z", gorgonia.NewF64(1)), "graph: step 3: the graph has 0 inputs named z, want one"},
		{with("x", nil), "graph: step 3: input x is nil"},
		{with("x", (*tensor.Dense)(nil)), "graph: step 3: input x: runtime error: invalid memory address"},
		{with("x", dense(nil, tensor.Float64, 2, 2)), "graph: step 3: input x: Node's expected shape is (6, 5). Got (2, 2) instead"},
		{with("x", dense(nil, tensor.Float32, 6, 5)), "graph: step 3: input x: Unable to let x be"},
	} {
		err := tr.Run(t.Context(), 5, c.batches)
		require.ErrorContains(t, err, c.want)
		assert.Equal(t, 2, tr.Step())
	}
	// Gorgonia's own AdamW takes every parameter for a tensor.
	tr = newTestTrainer(t, m, WithSolver(gorgonia.NewAdamW()))
	assert.ErrorContains(t, tr.Run(t.Context(), 1, good), "graph: step 1: solver: *gorgonia.AdamW panicked: interface conversion")

	// Two inputs of one name, which Gorgonia tells apart by their shapes.
	twice := newTiny(t, mhc.Liger, tensor.Float64, 1)
	gorgonia.NewVector(twice.g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(3))
	tr = newTestTrainer(t, twice)
	assert.ErrorContains(t, tr.Run(t.Context(), 1, twice.numbered(5)), "graph: step 1: the graph has 2 inputs named x, want one")

	// An input that no batch has set.
	fresh := newTiny(t, mhc.Liger, tensor.Float64, 1)
	tr = newTestTrainer(t, fresh)
	assert.ErrorContains(t, tr.Run(t.Context(), 1, func(int) (Batch, error) { return Batch{}, nil }), "No value bound to node x")
	require.NoError(t, tr.Run(t.Context(), 1, fresh.numbered(5)), "after an error")
}

// Gradients that Grad made of another cost, or for some of the parameters, would
// train something else than the loss.
func TestNewTrainerRefusesForeignGradients(t *testing.T) {
	add := func(a, b *gorgonia.Node) *gorgonia.Node { return gorgonia.Must(gorgonia.Add(a, b)) }
	for name, other := range map[string]func(m *tiny) *gorgonia.Node{
		"a multiple": func(m *tiny) *gorgonia.Node {
			return gorgonia.Must(gorgonia.Mul(m.loss, gorgonia.NewConstant(5.0)))
		},
		"a sum": func(m *tiny) *gorgonia.Node {
			return add(m.loss, gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(m.params[0])))))
		},
		"one beside it": func(m *tiny) *gorgonia.Node {
			sum := gorgonia.Must(gorgonia.Sum(m.params[0]))
			for _, p := range m.params[1:] {
				sum = add(sum, gorgonia.Must(gorgonia.Sum(p)))
			}
			return sum
		},
	} {
		m := newTiny(t, mhc.Liger, tensor.Float64, 1)
		_, err := gorgonia.Grad(other(m), m.params...)
		require.NoError(t, err)
		_, err = NewTrainer(m.loss, m.params)
		assert.EqualError(t, err, "graph: the parameters have gradients of another cost than the loss", name)
	}
	m := newTiny(t, mhc.Liger, tensor.Float64, 1)
	_, err := gorgonia.Grad(m.loss, m.params[1:]...)
	require.NoError(t, err)
	_, err = NewTrainer(m.loss, m.params)
	assert.ErrorContains(t, err, "parameter "+m.params[0].Name()+" has no gradient and others have one")
}

func TestNewTrainerRefuses(t *testing.T) {
	m := newTiny(t, mhc.Liger, tensor.Float64, 1)
	other := newTiny(t, mhc.Liger, tensor.Float64, 1)
	g := gorgonia.NewGraph()
	one := dense([]float64{1}, tensor.Float64, 1)
	in := func(name string, opts ...gorgonia.NodeConsOpt) *gorgonia.Node {
		return gorgonia.NewVector(g, tensor.Float64, append(opts, gorgonia.WithName(name), gorgonia.WithShape(1))...)
	}
	w, idle, empty := in("w", gorgonia.WithValue(one)), in("idle", gorgonia.WithValue(one)), in("empty")
	whole := gorgonia.NewVector(g, tensor.Int, gorgonia.WithName("whole"), gorgonia.WithShape(1), gorgonia.WithValue(tensor.New(tensor.WithShape(1), tensor.WithBacking([]int{1}))))
	double := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("double"), gorgonia.WithShape(1), gorgonia.WithValue(one))
	gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("double"), gorgonia.WithShape(2))
	square := gorgonia.Must(gorgonia.Square(w))
	loss := gorgonia.Must(gorgonia.Sum(square))
	count := gorgonia.NewScalar(g, tensor.Int, gorgonia.WithName("count"))
	for _, c := range []struct {
		want    string
		loss    *gorgonia.Node
		params  gorgonia.Nodes
		options []TrainerOption
	}{
		{want: "loss is nil", params: gorgonia.Nodes{w}},
		{want: "loss has shape (1), want a scalar", loss: square, params: gorgonia.Nodes{w}},
		{want: "loss is int, want float32 or float64", loss: count, params: gorgonia.Nodes{w}},
		{want: "loss belongs to no graph", loss: gorgonia.NewConstant(1.0), params: gorgonia.Nodes{new(gorgonia.Node)}},
		{want: "there are no parameters", loss: loss},
		{want: "parameter 1 is nil", loss: loss, params: gorgonia.Nodes{w, nil}},
		{want: "parameter square(%0) is no input node", loss: loss, params: gorgonia.Nodes{square}},
		{want: "parameter w.0 is not of the loss's graph", loss: loss, params: gorgonia.Nodes{other.params[0]}},
		{want: "the name of parameter w is not its own", loss: loss, params: gorgonia.Nodes{w, w}},
		{want: "the name of parameter double is not its own", loss: loss, params: gorgonia.Nodes{double}},
		{want: "empty has no value", loss: loss, params: gorgonia.Nodes{empty}},
		{want: "whole is int, want float32 or float64", loss: loss, params: gorgonia.Nodes{whole}},
		{want: "the loss cannot be differentiated: ", loss: loss, params: gorgonia.Nodes{idle}},
		{want: "the solver is nil", options: []TrainerOption{WithSolver(nil)}},
		{want: "the clip norm is -1", options: []TrainerOption{WithClipNorm(-1)}},
		{want: "the clip norm is NaN", options: []TrainerOption{WithClipNorm(math.NaN())}},
		{want: "accumulation over 0 batches, want 1 or more", options: []TrainerOption{WithAccumulation(0)}},
		{want: "evaluation every 2 steps over 0 batches", options: []TrainerOption{WithEval(2, 0, m.numbered(1))}},
		{want: "evaluation every 2 steps over 1 batches, want 1 or more of both and a source", options: []TrainerOption{WithEval(2, 1, nil)}},
		{want: "evaluation every -1 steps", options: []TrainerOption{WithEval(-1, 1, m.numbered(1))}},
		{want: "a checkpoint every -1 steps", options: []TrainerOption{WithCheckpoint("x", -1)}},
		{want: "the path of the checkpoint is empty", options: []TrainerOption{WithCheckpoint("", 1)}},
		{want: "a checkpoint is asked for and the state of *gorgonia.AdamSolver cannot be saved", options: []TrainerOption{WithSolver(gorgonia.NewAdamSolver()), WithCheckpoint("x", 1)}},
		{want: "callback 0 is nil", options: []TrainerOption{WithCallback(nil)}},
	} {
		if c.options != nil {
			c.loss, c.params = m.loss, m.params
		}
		_, err := NewTrainer(c.loss, c.params, c.options...)
		assert.ErrorContains(t, err, "graph: "+c.want)
	}
}

// The loss alone, on a machine of its own, is the loss of the whole graph.
func TestEvaluate(t *testing.T) {
	m := newTiny(t, mhc.Paper, tensor.Float64, 1)
	var losses []float64
	tr := newTestTrainer(t, m, WithSolver(solverFunc(func([]gorgonia.ValueGrad) error { return nil })),
		WithCallback(func(m Metrics) error { losses = append(losses, m.Loss); return nil }))
	require.NoError(t, tr.Run(t.Context(), 3, m.numbered(5)))
	mean, err := tr.Evaluate(t.Context(), 3, m.numbered(5))
	require.NoError(t, err)
	assert.InDelta(t, (losses[0]+losses[1]+losses[2])/3, mean, 1e-15)

	_, err = tr.Evaluate(t.Context(), 0, m.numbered(5))
	assert.EqualError(t, err, "graph: evaluation over 0 batches, want 1 or more")
	_, err = tr.Evaluate(t.Context(), 2, func(int) (Batch, error) { return Batch{}, errors.New("broken") })
	assert.EqualError(t, err, "graph: evaluation batch 0: broken")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = tr.Evaluate(ctx, 2, m.numbered(5))
	assert.ErrorIs(t, err, context.Canceled)
}

// Dropout is on in training and off in evaluation, though both machines share
// its op.
func TestEvaluateTurnsDropoutOff(t *testing.T) {
	g := gorgonia.NewGraph()
	x := gorgonia.NewVector(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(200), gorgonia.WithValue(dense(make([]float64, 200), tensor.Float64, 200)))
	w := newParameter(g, "w", tensor.Float64, make([]float64, 200), 200)
	for i := range 200 {
		w.Value().(*tensor.Dense).Float64s()[i] = 1
	}
	dropped := gorgonia.Must(gorgonia.Dropout(gorgonia.Must(gorgonia.Add(x, w)), 0.5))
	tr, err := NewTrainer(gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.Square(dropped)))), gorgonia.Nodes{w},
		WithSolver(solverFunc(func([]gorgonia.ValueGrad) error { return nil })))
	require.NoError(t, err)
	defer tr.Close()
	none := func(int) (Batch, error) { return Batch{}, nil }
	for range 2 {
		loss, err := tr.Evaluate(t.Context(), 1, none)
		require.NoError(t, err)
		assert.Equal(t, 200.0, loss)
		m, err := tr.advance(none)
		require.NoError(t, err)
		assert.NotEqual(t, 200.0, m.Loss)
	}
}

// Streams stored in 16 bits between layers of float32.
func TestSixteenBitStreams(t *testing.T) {
	for _, dt := range []tensor.Dtype{op.BFloat16, op.Float16} {
		g := gorgonia.NewGraph()
		x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(6, 8), gorgonia.WithName("x"))
		source := rand.NewPCG(1, 1)
		stack, err := NewStack(g, "s", 2, Config{MHC: mhc.Liger.Config(4), Channels: 8, Rand: source})
		require.NoError(t, err)
		h, err := op.Cast(x, dt)
		require.NoError(t, err)
		h, err = stack.In(h)
		require.NoError(t, err)
		for _, l := range stack.Layers() {
			h, err = l.Apply(h, func(in *gorgonia.Node) (*gorgonia.Node, error) {
				assert.Equal(t, tensor.Float32, in.Dtype())
				return gorgonia.Tanh(in)
			})
			require.NoError(t, err)
			assert.Equal(t, dt, h.Dtype())
		}
		out, err := stack.Out(h)
		require.NoError(t, err)
		assert.Equal(t, tensor.Float32, out.Dtype())
		loss := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(out))))
		var losses []float64
		tr, err := NewTrainer(loss, stack.Learnables(), WithSolver(NewAdamW(0.03)),
			WithCallback(func(m Metrics) error { losses = append(losses, m.Loss); return nil }))
		require.NoError(t, err)
		defer tr.Close()
		values := make([]float64, 48)
		for i := range values {
			values[i] = rand.New(source).NormFloat64()
		}
		require.NoError(t, tr.Run(t.Context(), 40, func(int) (Batch, error) {
			return Batch{Inputs: map[string]gorgonia.Value{"x": dense(values, tensor.Float32, 6, 8)}}, nil
		}))
		assert.Less(t, losses[39], losses[0]/2)
	}
}

// stamped is an engine that only says that it was asked.
type stamped struct{ tensor.StdEng }

func TestEngineReachesBatches(t *testing.T) {
	m := newTiny(t, mhc.Liger, tensor.Float64, 1)
	e := &stamped{}
	tr := newTestTrainer(t, m, WithEngine(e))
	b, err := m.numbered(5)(0)
	require.NoError(t, err)
	require.NoError(t, tr.Run(t.Context(), 1, func(int) (Batch, error) { return b, nil }))
	assert.Same(t, e, m.x.Value().(*tensor.Dense).Engine())
	assert.Same(t, e, m.params[0].Value().(*tensor.Dense).Engine())
	assert.IsType(t, tensor.StdEng{}, b.Inputs["x"].(*tensor.Dense).Engine(), "the caller's own tensor")
}

func TestProgressLines(t *testing.T) {
	m := newTiny(t, mhc.Liger, tensor.Float64, 1)
	var out bytes.Buffer
	tr := newTestTrainer(t, m, WithProgress(&out), WithEval(50, 1, m.numbered(7)))
	require.NoError(t, tr.Run(t.Context(), 100, m.numbered(5)))
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	assert.Len(t, lines, 50)
	for i, l := range lines {
		eval := ""
		if i >= 24 { // the first evaluation is after step 50
			eval = `, eval [0-9.]+`
		}
		assert.Regexp(t, fmt.Sprintf(`^step %d/100, loss [0-9.]+%s, [0-9]+ tokens/s, \d+s left$`, 2*(i+1), eval), l)
	}
	assert.True(t, strings.HasSuffix(lines[49], " 0s left"))

	broken := newTestTrainer(t, newTiny(t, mhc.Liger, tensor.Float64, 1), WithProgress(brokenWriter{}))
	assert.ErrorContains(t, broken.Run(t.Context(), 1, m.numbered(5)), "broken pipe")
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// Two nodes of one hash are two nodes to the graph and one to the machine.
func TestNewTrainerReportsHashCollisions(t *testing.T) {
	g := gorgonia.NewGraph()
	a := newParameter(g, "p68346", tensor.Float64, []float64{1, 2}, 2)
	b := newParameter(g, "p4009", tensor.Float64, []float64{3, 4}, 2)
	require.Equal(t, a.Hashcode(), b.Hashcode())
	loss := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.HadamardProd(a, b))))
	_, err := NewTrainer(loss, gorgonia.Nodes{a, b})
	assert.EqualError(t, err, "graph: nodes p68346 (0) and p4009 (1) have one hash, so Gorgonia would run them as one: rename an input of either")
}

// Gradients that the graph has already are used.
func TestNewTrainerAfterGrad(t *testing.T) {
	want := newTiny(t, mhc.Liger, tensor.Float64, 1)
	require.NoError(t, newTestTrainer(t, want).Run(t.Context(), 2, want.numbered(5)))
	m := newTiny(t, mhc.Liger, tensor.Float64, 1)
	_, err := gorgonia.Grad(m.loss, m.params...)
	require.NoError(t, err)
	require.NoError(t, newTestTrainer(t, m).Run(t.Context(), 2, m.numbered(5)))
	assert.Equal(t, want.weights(t), m.weights(t))
}

func TestTrainingIsTheSameOnAnyNumberOfProcessors(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	var want map[string][]float64
	for _, n := range []int{1, 2, 7} {
		runtime.GOMAXPROCS(n)
		m := newTiny(t, mhc.Liger, tensor.Float32, 1)
		require.NoError(t, newTestTrainer(t, m, WithClipNorm(0.1)).Run(t.Context(), 5, m.numbered(5)))
		if want == nil {
			want = m.weights(t)
		}
		assert.Equal(t, want, m.weights(t), "GOMAXPROCS %d", n)
	}
}

// The gradient of several batches is the mean of theirs.
func TestAccumulation(t *testing.T) {
	gradients := func(accumulate int, batches func(Batches) Batches) (all map[string][]float64, last Metrics) {
		m := newTiny(t, mhc.Liger, tensor.Float64, 1)
		all = make(map[string][]float64)
		tr := newTestTrainer(t, m, WithAccumulation(accumulate), WithSolver(solverFunc(func(model []gorgonia.ValueGrad) error {
			for _, p := range model {
				g, err := p.Grad()
				require.NoError(t, err)
				all[nameOf(p)] = append([]float64(nil), floats(t, g)...)
			}
			return nil
		})), WithCallback(func(m Metrics) error { last = m; return nil }))
		require.NoError(t, tr.Run(t.Context(), 2, batches(m.numbered(5))))
		return all, last
	}
	var asked []int
	got, m := gradients(3, func(b Batches) Batches {
		return func(i int) (Batch, error) { asked = append(asked, i); return b(i) }
	})
	assert.Equal(t, []int{0, 1, 2, 3, 4, 5}, asked)
	assert.Equal(t, 3*tinyTokens, m.Tokens)
	loss := 0.0
	want := make(map[string][]float64)
	for i := range 3 {
		one, m := gradients(1, func(b Batches) Batches { return func(int) (Batch, error) { return b(3 + i) } })
		loss += m.Loss / 3
		for name, g := range one {
			if want[name] == nil {
				want[name] = make([]float64, len(g))
			}
			for j, v := range g {
				want[name][j] += v / 3
			}
		}
	}
	assert.InDelta(t, loss, m.Loss, 1e-14)
	for name := range want {
		assert.InDeltaSlice(t, want[name], got[name], 1e-14, name)
	}
}

// Gorgonia's options that watch and copy every value change nothing.
func TestMachineOptions(t *testing.T) {
	want := newTiny(t, mhc.Paper, tensor.Float64, 1)
	require.NoError(t, newTestTrainer(t, want).Run(t.Context(), 3, want.numbered(5)))
	m := newTiny(t, mhc.Paper, tensor.Float64, 1)
	tr := newTestTrainer(t, m, WithMachine(gorgonia.TraceExec()), WithMachine(gorgonia.WithNaNWatch(), gorgonia.WithInfWatch()))
	require.NoError(t, tr.Run(t.Context(), 3, m.numbered(5)))
	assert.Equal(t, want.weights(t), m.weights(t))
	err := tr.Run(t.Context(), 4, func(step int) (Batch, error) {
		b, err := m.numbered(5)(step)
		set(b.Inputs["x"].(*tensor.Dense), 0, math.NaN())
		return b, err
	})
	assert.ErrorContains(t, err, "graph: step 4: NaN found in value. Node: ")
}

func TestRunWithNothingToDo(t *testing.T) {
	m := newTiny(t, mhc.Liger, tensor.Float32, 1)
	before := m.weights(t)
	var out bytes.Buffer
	tr := newTestTrainer(t, m, WithProgress(&out))
	require.NoError(t, tr.Run(t.Context(), 0, m.numbered(5)))
	require.NoError(t, tr.Run(t.Context(), -3, m.numbered(5)))
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	assert.EqualError(t, tr.Run(ctx, 3, m.numbered(5)), "graph: stopped after 0 of 3 steps: enough")
	assert.Equal(t, before, m.weights(t))
	assert.Empty(t, out.String())
}
