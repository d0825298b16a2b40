package graph

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
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
// [WithAccumulation] gives a step several. A run can resume only if a batch depends on
// nothing but i, the data and the trainer's RNG.
type Batches func(i int) (Batch, error)

// Metrics are what a training step has come to.
type Metrics struct {
	Step         int           // steps taken in all, this one included
	Loss         float64       // of the step's batch (mean over its batches), before the step
	GradNorm     float64       // L2 norm over all parameters, before clipping
	LearningRate float64       // NaN where the trainer has no schedule
	Tokens       int           // of the step's batches
	Elapsed      time.Duration // of the step; evaluation and checkpoints are not counted
	Eval         float64       // mean loss over the evaluation batches; NaN where the step has none
}

// RNG is a source of random numbers whose state can be saved, as rand.PCG and
// rand.ChaCha8 of math/rand/v2.
type RNG interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

// Trainer trains the parameters of an expression graph. It runs the graph on a
// TapeMachine and takes care of what Gorgonia leaves to its user: it resets the
// machine after each run (RunAll on a finished machine does nothing, silently),
// zeroes the gradients before (a machine adds to what is there), reads the loss
// by a statement of the graph (a node's memory is reused), and stops before a
// step whose loss or gradient is not finite reaches the weights.
//
// A Trainer is for one goroutine, and so is the graph while it runs.
type Trainer struct {
	trainerOptions
	graph   *gorgonia.ExprGraph
	loss    *gorgonia.Node
	params  gorgonia.Nodes
	inputs  map[string]*gorgonia.Node
	machine gorgonia.VM
	forward gorgonia.VM    // computes the loss alone; made when first asked for
	value   gorgonia.Value // the loss of the last run, written by read
	read    *gorgonia.Node
	step    int
}

// NewTrainer makes a trainer of params, which lie on the way to loss, a scalar of
// float32 or float64. It adds the gradients to loss's graph, unless each of
// params has one (Grad works once on a graph), and compiles the graph as it
// stands: nodes that are to be read, as by [WatchGain], come before.
//
// The error names a parameter without a name of its own, a value, a way to the
// loss, or of a dtype other than float32 and float64 (Gorgonia's machines and
// solvers know no other).
func NewTrainer(loss *gorgonia.Node, params gorgonia.Nodes, options ...TrainerOption) (*Trainer, error) {
	t := &Trainer{loss: loss, params: slices.Clone(params), trainerOptions: defaultOptions()}
	for _, o := range options {
		o(&t.trainerOptions)
	}
	if err := t.check(); err != nil {
		return nil, err
	}
	t.graph = loss.Graph()
	t.inputs = make(map[string]*gorgonia.Node)
	for _, n := range t.graph.Inputs() {
		t.inputs[n.Name()] = n
	}
	if err := t.differentiate(); err != nil {
		return nil, err
	}
	t.read = gorgonia.Read(loss, &t.value)
	if err := unmerged(t.graph); err != nil {
		return nil, err
	}
	for _, p := range t.params {
		if err := bindGradient(p); err != nil {
			return nil, err
		}
	}
	var err error
	t.machine, err = newMachine(t.graph, append(t.machineOptions(), gorgonia.BindDualValues(t.params...))...)
	return t, err
}

func (t *Trainer) check() error {
	if err := t.trainerOptions.check(); err != nil {
		return err
	}
	switch {
	case t.loss == nil:
		return errors.New("graph: loss is nil")
	case !t.loss.IsScalar():
		return fmt.Errorf("graph: loss has shape %v, want a scalar", t.loss.Shape())
	case t.loss.Dtype() != tensor.Float32 && t.loss.Dtype() != tensor.Float64:
		// Grad would return neither gradients nor an error.
		return fmt.Errorf("graph: loss is %v, want float32 or float64", t.loss.Dtype())
	case len(t.params) == 0:
		return errors.New("graph: there are no parameters to train")
	}
	names := make(map[string]bool)
	for i, p := range t.params {
		if p == nil {
			return fmt.Errorf("graph: parameter %d is nil", i)
		}
		if !p.IsVar() {
			return fmt.Errorf("graph: parameter %s is no input node", p.Name())
		}
		if p.Graph() != t.loss.Graph() {
			return fmt.Errorf("graph: parameter %s is not of the loss's graph", p.Name())
		}
		if names[p.Name()] || len(p.Graph().ByName(p.Name())) != 1 {
			return fmt.Errorf("graph: the name of parameter %s is not its own", p.Name())
		}
		names[p.Name()] = true
		if _, err := memory(p.Name(), p.Value()); err != nil {
			return err
		}
	}
	return nil
}

// differentiate gives every parameter a gradient node.
func (t *Trainer) differentiate() (err error) {
	if !slices.ContainsFunc(t.params, func(p *gorgonia.Node) bool { return p.Deriv() == nil }) {
		return nil
	}
	defer recovered(&err, "graph: the loss cannot be differentiated")
	if _, err := gorgonia.Grad(t.loss, t.params...); err != nil {
		return fmt.Errorf("graph: the loss cannot be differentiated: %w", err)
	}
	return nil
}

// recovered turns a panic of Gorgonia's into an error.
func recovered(err *error, what string) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s: %v", what, p)
	}
}

// unmerged returns an error if two nodes have one hash: a TapeMachine is compiled
// from the 32-bit hashes alone and would take them for one node.
func unmerged(g *gorgonia.ExprGraph) error {
	seen := make(map[uint32]*gorgonia.Node)
	for _, n := range g.AllNodes() {
		if other := seen[n.Hashcode()]; other != nil {
			return fmt.Errorf("graph: nodes %s (%d) and %s (%d) have one hash, so Gorgonia would run them as one: rename an input of either",
				other.Name(), other.ID(), n.Name(), n.ID())
		}
		seen[n.Hashcode()] = n
	}
	return nil
}

// bindGradient gives p a gradient of zeros, which the machine adds to.
func bindGradient(p *gorgonia.Node) error {
	if g, err := p.Grad(); err == nil && g != nil {
		return nil
	}
	zero, err := gorgonia.CloneValue(p.Value())
	if err != nil {
		return fmt.Errorf("graph: %s: %w", p.Name(), err)
	}
	gorgonia.WithGrad(gorgonia.ZeroValue(zero))(p)
	return nil
}

// newMachine compiles g; where Gorgonia panics it returns an error.
func newMachine(g *gorgonia.ExprGraph, options ...gorgonia.VMOpt) (m gorgonia.VM, err error) {
	defer recovered(&err, "graph: the graph cannot be compiled")
	return gorgonia.NewTapeMachine(g, options...), nil
}

// Run trains until steps steps have been taken in all, those before a
// [Trainer.Resume] included. It ends early, after a whole step, when ctx is done
// (signal.NotifyContext makes that Ctrl-C), with an error that wraps ctx's; with a step that is not finite, before that reaches the
// weights; and with the first error of batches, of a callback or of the graph.
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
		n := t.inputs[name]
		if n == nil {
			return 0, fmt.Errorf("the graph has no input %s", name)
		}
		if batch.Inputs[name] == nil {
			return 0, fmt.Errorf("input %s is nil", name)
		}
		if err := gorgonia.Let(n, t.onEngine(batch.Inputs[name])); err != nil {
			return 0, fmt.Errorf("input %s: %w", name, err)
		}
	}
	defer machine.Reset()
	if err := machine.RunAll(); err != nil {
		return 0, err
	}
	return scalar(t.value)
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

// Evaluate is the mean loss over count batches, numbered from 0. It computes the
// loss alone, without gradients, and puts ops that know training from evaluation
// (Dropout) into evaluation meanwhile.
func (t *Trainer) Evaluate(ctx context.Context, count int, batches Batches) (mean float64, err error) {
	if count < 1 || batches == nil {
		return 0, fmt.Errorf("graph: evaluation over %d batches, want 1 or more", count)
	}
	if t.forward == nil {
		if t.forward, err = t.forwardMachine(); err != nil {
			return 0, err
		}
	}
	if err := setTraining(t.graph, false); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, setTraining(t.graph, true)) }()
	for i := range count {
		if ctx.Err() != nil {
			return 0, fmt.Errorf("graph: evaluation stopped after %d of %d batches: %w", i, count, context.Cause(ctx))
		}
		batch, err := batches(i)
		if err != nil {
			return 0, fmt.Errorf("graph: evaluation batch %d: %w", i, err)
		}
		loss, err := t.compute(t.forward, batch)
		if err != nil {
			return 0, fmt.Errorf("graph: evaluation batch %d: %w", i, err)
		}
		mean += loss / float64(count)
	}
	return mean, nil
}

// Step is the number of steps taken.
func (t *Trainer) Step() int { return t.step }

// Checkpoint is a copy of all that the rest of the run depends on.
func (t *Trainer) Checkpoint() (*Checkpoint, error) {
	c := &Checkpoint{Step: t.step, Settings: maps.Clone(t.settings)}
	var err error
	if c.Weights, err = SaveWeights(t.params); err != nil {
		return nil, err
	}
	if s, ok := t.solver.(StatefulSolver); ok {
		c.Solver = s.State()
	}
	if t.rng != nil {
		if c.RNG, err = t.rng.MarshalBinary(); err != nil {
			return nil, fmt.Errorf("graph: the RNG's state: %w", err)
		}
	}
	return c, nil
}

// Save writes a checkpoint to a file, whole or not at all.
func (t *Trainer) Save(path string) error {
	c, err := t.Checkpoint()
	if err != nil {
		return err
	}
	return c.Write(path)
}

// Resume continues from a checkpoint file: what follows is to the last bit what
// would have followed without the stop. The file must have been written by a
// trainer of the same parameters, settings and kinds of solver and RNG; else the
// error names what differs and nothing has changed.
func (t *Trainer) Resume(path string) error {
	c, err := ReadCheckpoint(path)
	if err != nil {
		return err
	}
	if err := t.restore(c); err != nil {
		return fmt.Errorf("%w (in %s)", err, path)
	}
	return nil
}

func (t *Trainer) restore(c *Checkpoint) error {
	for _, key := range slices.Sorted(maps.Keys(t.settings)) {
		if got, ok := c.Settings[key]; !ok || got != t.settings[key] {
			return fmt.Errorf("graph: setting %s is %q, want %q", key, got, t.settings[key])
		}
	}
	load, err := planLoad(t.params, c.Weights)
	if err != nil {
		return err
	}
	if (c.RNG != nil) != (t.rng != nil) {
		return fmt.Errorf("graph: the checkpoint's RNG has %d bytes, and the trainer's is %T", len(c.RNG), t.rng)
	}
	restoreRNG := func([]byte) error { return nil }
	var rng []byte
	if t.rng != nil {
		restoreRNG = t.rng.UnmarshalBinary
		if rng, err = t.rng.MarshalBinary(); err != nil {
			return fmt.Errorf("graph: the RNG's state: %w", err)
		}
	}
	if err := restoreRNG(c.RNG); err != nil {
		return errors.Join(fmt.Errorf("graph: the RNG's state: %w", err), restoreRNG(rng))
	}
	if err := t.restoreSolver(c.Solver); err != nil {
		return errors.Join(err, restoreRNG(rng))
	}
	load()
	t.step = c.Step
	return nil
}

func (t *Trainer) restoreSolver(state SolverState) error {
	if s, ok := t.solver.(StatefulSolver); ok {
		return s.SetState(state, gorgonia.NodesToValueGrads(t.params))
	}
	if len(state.Tensors) > 0 {
		return fmt.Errorf("graph: the checkpoint has the state of another solver: %T takes none", t.solver)
	}
	return nil
}

// Close releases the machines.
func (t *Trainer) Close() error {
	err := t.machine.Close()
	if t.forward != nil {
		err = errors.Join(err, t.forward.Close())
	}
	return err
}
