package graph

import (
	"context"
	"encoding"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
)

// run is a training run whose batches come from an RNG.
type run struct {
	*tiny
	*Trainer
	rng    *rand.PCG
	losses map[int]float64
}

func newRun(t testing.TB, dt tensor.Dtype, options ...TrainerOption) *run {
	r := &run{tiny: newTiny(t, mhc.Liger, dt, 1), rng: rand.NewPCG(3, 3), losses: make(map[int]float64)}
	r.Trainer = newTestTrainer(t, r.tiny, append([]TrainerOption{
		WithSolver(NewAdamW(0.02)), WithSchedule(Cosine(0.02, 0.001, 5, 40)), WithClipNorm(0.5), WithRNG(r.rng),
		WithEval(7, 2, r.drawn(r.rng)), // draws too
		WithSettings(map[string]string{"preset": "liger", "n": "3"}),
		WithCallback(func(m Metrics) error { r.losses[m.Step] = m.Loss; return nil }),
	}, options...)...)
	return r
}

func (r *run) train(ctx context.Context, steps int) error {
	return r.Run(ctx, steps, r.drawn(r.rng))
}

// everything is all that a step depends on and changes.
func (r *run) everything(t testing.TB) *Checkpoint {
	t.Helper()
	c, err := r.Checkpoint()
	require.NoError(t, err)
	return c
}

func assertSameCheckpoint(t *testing.T, want, got *Checkpoint) {
	t.Helper()
	assertSameState(t, want.Weights, got.Weights)
	assertSameState(t, want.Solver.Tensors, got.Solver.Tensors)
	assert.Equal(t, want.Solver.Steps, got.Solver.Steps)
	assert.Equal(t, want.Solver.Kind, got.Solver.Kind)
	assert.Equal(t, want.Step, got.Step)
	assert.Equal(t, want.RNG, got.RNG)
	assert.Equal(t, want.Settings, got.Settings)
}

// A run that is stopped by its context at any step and resumes in a new process'
// stead follows the one that was not, to the last bit.
func TestResumedRunEqualsUninterrupted(t *testing.T) {
	const steps = 40
	for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		t.Run(dt.String(), func(t *testing.T) {
			whole := newRun(t, dt)
			require.NoError(t, whole.train(t.Context(), steps))
			want := whole.everything(t)
			path := filepath.Join(t.TempDir(), "checkpoint.safetensors")
			for _, stop := range []int{1, 7, 20} {
				ctx, cancel := context.WithCancel(t.Context())
				first := newRun(t, dt, WithCheckpoint(path, 0), WithCallback(func(m Metrics) error {
					if m.Step == stop {
						cancel()
					}
					return nil
				}))
				err := first.train(ctx, steps)
				require.ErrorIs(t, err, context.Canceled)
				assert.ErrorContains(t, err, "graph: stopped after")
				assert.Equal(t, stop, first.Step())

				second := newRun(t, dt)
				require.NoError(t, second.Resume(path))
				assert.Equal(t, stop, second.Step())
				require.NoError(t, second.train(t.Context(), steps))
				assertSameCheckpoint(t, want, second.everything(t))
				for step := stop + 1; step <= steps; step++ {
					assert.Equal(t, whole.losses[step], second.losses[step], "loss of step %d", step)
				}
			}
		})
	}
}

func TestCheckpointsAreWrittenWhenDue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.safetensors")
	steps := make(map[int]int)
	r := newRun(t, tensor.Float32, WithCheckpoint(path, 3), WithCallback(func(m Metrics) error {
		if c, err := ReadCheckpoint(path); err == nil {
			steps[m.Step] = c.Step // what the step before has left
		}
		return nil
	}))
	require.NoError(t, r.train(t.Context(), 8))
	assert.Equal(t, map[int]int{4: 3, 5: 3, 6: 3, 7: 6, 8: 6}, steps)
	c, err := ReadCheckpoint(path)
	require.NoError(t, err)
	assertSameCheckpoint(t, r.everything(t), c)
	assert.Equal(t, 8, c.Step)

	// Nothing has changed, so nothing is written.
	require.NoError(t, os.Remove(path))
	require.NoError(t, r.train(t.Context(), 8))
	assert.NoFileExists(t, path)
}

// The last good checkpoint outlives a step that is not finite.
func TestCheckpointOutlivesNaN(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.safetensors")
	r := newRun(t, tensor.Float32, WithCheckpoint(path, 2))
	good := r.drawn(r.rng)
	err := r.Run(t.Context(), 9, func(step int) (Batch, error) {
		b, err := good(step)
		if step == 5 {
			set(b.Inputs["x"].(*tensor.Dense), 0, 1e30)
			set(b.Inputs["y"].(*tensor.Dense), 0, 1e30)
		}
		return b, err
	})
	require.ErrorContains(t, err, "graph: step 6: the loss is +Inf")
	c, err := ReadCheckpoint(path)
	require.NoError(t, err)
	assert.Equal(t, 4, c.Step)
}

func TestVanillaSolverResumes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.safetensors")
	vanilla := func() TrainerOption { return WithSolver(gorgonia.NewVanillaSolver()) }
	whole := newRun(t, tensor.Float64, vanilla())
	require.NoError(t, whole.train(t.Context(), 10))
	first := newRun(t, tensor.Float64, vanilla(), WithCheckpoint(path, 0))
	require.NoError(t, first.train(t.Context(), 4))
	second := newRun(t, tensor.Float64, vanilla())
	require.NoError(t, second.Resume(path))
	require.NoError(t, second.train(t.Context(), 10))
	assertSameCheckpoint(t, whole.everything(t), second.everything(t))

	adamw := newRun(t, tensor.Float64, WithCheckpoint(path, 0))
	require.NoError(t, adamw.train(t.Context(), 4))
	assert.ErrorContains(t, second.Resume(path), "the checkpoint's solver is *graph.AdamW, want *gorgonia.VanillaSolver")
}

// Cut off at every KiB, and at the ends, a checkpoint is refused and the trainer
// is as before.
func TestResumeFromTruncatedCheckpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.safetensors")
	source := newRun(t, tensor.Float64, WithCheckpoint(path, 0))
	require.NoError(t, source.train(t.Context(), 2))
	data := read(t, path)
	r := newRun(t, tensor.Float64)
	require.NoError(t, r.train(t.Context(), 1))
	before := r.everything(t)
	cuts := []int{1, 7, 8, 9, len(data) - 1}
	for n := 0; n < len(data); n += 1 << 10 {
		cuts = append(cuts, n)
	}
	for _, n := range cuts {
		require.NoError(t, os.WriteFile(path, data[:n], 0o644))
		assert.Error(t, r.Resume(path), "%d of %d bytes", n, len(data))
		assertSameCheckpoint(t, before, r.everything(t))
	}
	require.NoError(t, os.WriteFile(path, data, 0o644))
	require.NoError(t, r.Resume(path))
	assertSameCheckpoint(t, source.everything(t), r.everything(t))
}

// Any tensor or entry that does not fit is named, and the trainer is as before.
func TestResumeFromForeignCheckpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.safetensors")
	source := newRun(t, tensor.Float64, WithCheckpoint(path, 0))
	require.NoError(t, source.train(t.Context(), 2))
	r := newRun(t, tensor.Float64)
	require.NoError(t, r.train(t.Context(), 1))
	before := r.everything(t)
	one := tensor.New(tensor.WithShape(1), tensor.WithBacking([]float64{1}))
	single, err := Convert(source.everything(t).Weights["blocks.1.b"], tensor.Float32)
	require.NoError(t, err)
	for _, c := range []struct {
		want   string
		change func(State, map[string]string)
	}{
		{"there is no tensor blocks.0.phi", func(s State, _ map[string]string) { delete(s, "blocks.0.phi") }},
		{"tensor blocks.0.phi has shape (1), want (15, 15)", func(s State, _ map[string]string) { s["blocks.0.phi"] = one }},
		{"tensor blocks.1.b is float32, want float64", func(s State, _ map[string]string) { s["blocks.1.b"] = single }},
		{"tensor blocks.2.b belongs to no parameter", func(s State, _ map[string]string) { s["blocks.2.b"] = one }},
		{"there is no tensor scale", func(s State, _ map[string]string) { delete(s, "scale") }},
		{"AdamW's state has no tensor m/scale", func(s State, _ map[string]string) { delete(s, "solver/m/scale") }},
		{"tensor v/blocks.head.b has shape (1), want (3)", func(s State, _ map[string]string) { s["solver/v/blocks.head.b"] = one }},
		{"AdamW's state has a tensor m/other, which belongs to no parameter", func(s State, _ map[string]string) { s["solver/m/other"] = one }},
		{`its format is "", want "mhc-checkpoint-1"`, func(_ State, m map[string]string) { delete(m, "format") }},
		{`step is "", want a number of 0 or more`, func(_ State, m map[string]string) { delete(m, "step") }},
		{`step is "-1"`, func(_ State, m map[string]string) { m["step"] = "-1" }},
		{"the checkpoint's solver is *gorgonia.VanillaSolver, want *graph.AdamW", func(_ State, m map[string]string) { m["solver"] = "*gorgonia.VanillaSolver" }},
		{`solver_steps is "x"`, func(_ State, m map[string]string) { m["solver_steps"] = "x" }},
		{"rng: encoding/hex", func(_ State, m map[string]string) { m["rng"] = "zz" }},
		{"the RNG's state: invalid PCG encoding", func(_ State, m map[string]string) { m["rng"] = "00" }},
		{"the checkpoint's RNG has 0 bytes, and the trainer's is *rand.PCG", func(_ State, m map[string]string) { delete(m, "rng") }},
		{`setting preset is "paper", want "liger"`, func(_ State, m map[string]string) { m["setting/preset"] = "paper" }},
		{`setting n is "", want "3"`, func(_ State, m map[string]string) { delete(m, "setting/n") }},
	} {
		t.Run(c.want, func(t *testing.T) {
			state, metadata, err := ReadState(path, nil)
			require.NoError(t, err)
			c.change(state, metadata)
			changed := filepath.Join(t.TempDir(), "changed.safetensors")
			require.NoError(t, WriteState(changed, state, metadata))
			err = r.Resume(changed)
			require.ErrorContains(t, err, c.want)
			assert.ErrorContains(t, err, changed)
			assertSameCheckpoint(t, before, r.everything(t))
		})
	}
	assert.ErrorIs(t, r.Resume(filepath.Join(t.TempDir(), "gone")), os.ErrNotExist)
}

// brokenRNG spoils itself when it refuses a state.
type brokenRNG struct {
	*rand.PCG
	state []byte
}

func (b *brokenRNG) MarshalBinary() ([]byte, error) { return slices.Clone(b.state), nil }

func (b *brokenRNG) UnmarshalBinary(state []byte) error {
	b.state = slices.Clone(state)
	if len(state) != 2 {
		return os.ErrInvalid
	}
	return nil
}

var _ interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
} = (*brokenRNG)(nil)

func TestResumeRestoresTheRNGOnErrors(t *testing.T) {
	m := newTiny(t, mhc.Liger, tensor.Float64, 1)
	rng := &brokenRNG{state: []byte{1, 2}}
	tr := newTestTrainer(t, m, WithRNG(rng))
	c, err := tr.Checkpoint()
	require.NoError(t, err)
	c.RNG = []byte{9}
	assert.ErrorIs(t, tr.restore(c), os.ErrInvalid)
	assert.Equal(t, []byte{1, 2}, rng.state)
	c.RNG, c.Solver.Steps = []byte{3, 4}, 1
	assert.ErrorContains(t, tr.restore(c), "AdamW's state has no tensor")
	assert.Equal(t, []byte{1, 2}, rng.state)
}

// A checkpoint that cannot be written ends the run and leaves the one before.
func TestRunEndsWhereACheckpointCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "checkpoint.safetensors")
	r := newRun(t, tensor.Float32, WithCheckpoint(path, 2), WithCallback(func(m Metrics) error {
		if m.Step == 3 {
			// The file that is written beside it cannot be made.
			return os.MkdirAll(filepath.Join(dir, ".checkpoint.safetensors.partial", "x"), 0o755)
		}
		return nil
	}))
	assert.ErrorContains(t, r.train(t.Context(), 9), "checkpoint.safetensors")
	assert.Equal(t, 4, r.Step())
	c, err := ReadCheckpoint(path)
	require.NoError(t, err)
	assert.Equal(t, 2, c.Step)
}

func TestCheckpointRefusesReservedNames(t *testing.T) {
	c := &Checkpoint{Weights: State{"solver/x": tensor.New(tensor.WithBacking([]float32{1, 2}))}}
	assert.EqualError(t, c.Write(filepath.Join(t.TempDir(), "x")), "graph: a weight cannot be named solver/x: solver/ is for the solver's state")
}
