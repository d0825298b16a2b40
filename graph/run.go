package graph

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/op"
)

// Batch is what a step computes with.
type Batch struct {
	// Inputs are the values of input nodes by name. A node that a batch leaves out
	// keeps its value.
	Inputs map[string]gorgonia.Value
	// Tokens is the number of tokens, for the speed that is shown.
	Tokens int
}

// Batches gives batch i, counted from 0: that of step i, unless
// [WithAccumulation] gives a step several. A run can resume only if a batch
// depends on nothing but i, the data and the trainer's RNG.
type Batches func(i int) (Batch, error)

// Metrics are what a training step has come to.
type Metrics struct {
	Step         int           // steps taken in all, this one included
	Loss         float64       // mean over the step's batches, before the step
	GradNorm     float64       // L2 norm over all parameters, before clipping
	LearningRate float64       // NaN where the trainer has no schedule
	Tokens       int           // of the step's batches
	Elapsed      time.Duration // of the step; evaluation and checkpoints are not counted
	Eval         float64       // mean loss over the evaluation batches; NaN where the step has none
}

// Run trains until steps steps have been taken in all, those before a
// [Trainer.Resume] included. It ends early
//
//   - when ctx is done (signal.NotifyContext makes that Ctrl-C), after a whole
//     step, with an error that wraps ctx's;
//   - when a loss or gradient is not finite, before that reaches the weights, with
//     an error that names the step;
//   - with the first error of batches, of a callback or of the graph.
//
// With a checkpoint path it writes a checkpoint at its end and when ctx is done;
// after any other error the last one stays.
func (t *Trainer) Run(ctx context.Context, steps int, batches Batches) (err error) {
	if batches == nil {
		return errors.New("graph: batches is nil")
	}
	show := newProgress(t.progress, t.step, steps)
	defer func() { err = errors.Join(err, show.close()) }()
	saved := t.step
	for t.step < steps {
		if ctx.Err() != nil {
			return errors.Join(fmt.Errorf("graph: stopped after %d of %d steps: %w", t.step, steps, context.Cause(ctx)), t.saveSince(saved))
		}
		m, err := t.advance(batches)
		if err != nil {
			return fmt.Errorf("graph: step %d: %w", t.step+1, err)
		}
		if t.evalEvery > 0 && m.Step%t.evalEvery == 0 {
			// Never cut short: a resumed run must find the RNG as this one does.
			if m.Eval, err = t.Evaluate(context.WithoutCancel(ctx), t.evalCount, t.evalBatches); err != nil {
				return err
			}
		}
		if err := show.step(m); err != nil {
			return err
		}
		for _, call := range t.callbacks {
			if err := call(m); err != nil {
				return fmt.Errorf("graph: callback after step %d: %w", m.Step, err)
			}
		}
		if t.checkpointEvery > 0 && m.Step%t.checkpointEvery == 0 {
			if err := t.saveSince(saved); err != nil {
				return err
			}
			saved = t.step
		}
	}
	return t.saveSince(saved)
}

// saveSince writes a checkpoint unless none is asked for or the one of step is
// this one.
func (t *Trainer) saveSince(step int) error {
	if t.checkpointPath == "" || t.step == step {
		return nil
	}
	return t.Save(t.checkpointPath)
}

// advance takes one step.
func (t *Trainer) advance(batches Batches) (Metrics, error) {
	start := time.Now()
	m := Metrics{Step: t.step + 1, LearningRate: math.NaN(), Eval: math.NaN()}
	if t.schedule != nil {
		m.LearningRate = t.schedule(t.step)
		if err := checkRate(m.LearningRate); err != nil {
			return m, err
		}
		setLearningRate(t.solver, m.LearningRate)
	}
	grads, err := gradientsOf(t.params)
	if err != nil {
		return m, err
	}
	grads.zero()
	for i := range t.accumulate {
		batch, err := batches(t.step*t.accumulate + i)
		if err != nil {
			return m, fmt.Errorf("batch: %w", err)
		}
		loss, err := t.compute(t.machine, batch)
		if err != nil {
			return m, err
		}
		if err := checkFinite("the loss", loss); err != nil {
			return m, err
		}
		m.Loss += loss / float64(t.accumulate)
		m.Tokens += batch.Tokens
	}
	// Again: a machine adds to a tensor in place, but may replace a scalar.
	if grads, err = gradientsOf(t.params); err != nil {
		return m, err
	}
	if t.accumulate > 1 {
		grads.scale(1 / float64(t.accumulate))
	}
	m.GradNorm = grads.norm()
	if err := checkFinite("the gradient's norm", m.GradNorm); err != nil {
		return m, err
	}
	if t.clip > 0 && m.GradNorm > t.clip {
		grads.scale(t.clip / m.GradNorm)
	}
	if err := t.move(); err != nil {
		return m, err
	}
	t.step++
	m.Elapsed = time.Since(start)
	return m, nil
}

// move lets the solver take its step. Some of Gorgonia's panic at scalar
// parameters.
func (t *Trainer) move() (err error) {
	defer recovered(&err, fmt.Sprintf("solver: %T panicked", t.solver))
	if err := t.solver.Step(gorgonia.NodesToValueGrads(t.params)); err != nil {
		return fmt.Errorf("solver: %w", err)
	}
	return nil
}

// compute runs machine on batch and returns the loss.
func (t *Trainer) compute(machine gorgonia.VM, batch Batch) (float64, error) {
	for _, name := range slices.Sorted(maps.Keys(batch.Inputs)) {
		if err := t.let(name, batch.Inputs[name]); err != nil {
			return 0, err
		}
	}
	if arena, ok := t.engine.(*op.Arena); ok {
		arena.Recycle()
	}
	defer machine.Reset()
	if err := machine.RunAll(); err != nil {
		return 0, err
	}
	return scalar(t.value)
}

// let gives the input of that name its value.
func (t *Trainer) let(name string, v gorgonia.Value) (err error) {
	defer recovered(&err, "input "+name)
	nodes := t.inputs[name]
	switch {
	case len(nodes) != 1:
		return fmt.Errorf("the graph has %d inputs named %s, want one", len(nodes), name)
	case v == nil:
		return fmt.Errorf("input %s is nil", name)
	}
	if err := gorgonia.Let(nodes[0], t.onEngine(v)); err != nil {
		return fmt.Errorf("input %s: %w", name, err)
	}
	return nil
}

// onEngine is v on the trainer's engine. A machine hands its engine to the values
// that are bound when it is made, not to those of later batches, and an op asks
// the engine of its operand. The caller's tensor keeps its own.
func (t *Trainer) onEngine(v gorgonia.Value) gorgonia.Value {
	dense, ok := v.(*tensor.Dense)
	if !ok || t.engine == nil {
		return v
	}
	dense = dense.ShallowClone()
	tensor.WithEngine(t.engine)(dense)
	return dense
}
