package graph

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"math"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// TrainerOption is an option of [NewTrainer].
type TrainerOption func(*trainerOptions)

type trainerOptions struct {
	solver          gorgonia.Solver
	schedule        Schedule
	clip            float64
	accumulate      int
	engine          tensor.Engine
	machineOpts     []gorgonia.VMOpt
	evalEvery       int
	evalCount       int
	evalBatches     Batches
	callbacks       []func(Metrics) error
	checkpointPath  string
	checkpointEvery int
	progress        io.Writer
	rng             RNG
	settings        map[string]string
}

func defaultOptions() trainerOptions {
	return trainerOptions{solver: NewAdamW(1e-3), accumulate: 1}
}

// WithSolver sets the solver: any of Gorgonia's, [AdamW], or another. The default
// is NewAdamW(1e-3). With a checkpoint it must be a [StatefulSolver] or Gorgonia's
// VanillaSolver, which has no state.
func WithSolver(s gorgonia.Solver) TrainerOption { return func(o *trainerOptions) { o.solver = s } }

// WithSchedule sets the learning rate before each step. The solver must take one:
// [AdamW], one with a method SetLearningRate(float64), and of Gorgonia's those
// that gorgonia.WithLearnRate works on.
func WithSchedule(s Schedule) TrainerOption { return func(o *trainerOptions) { o.schedule = s } }

// WithClipNorm scales the gradient down to this L2 norm over all parameters where
// it is larger; 0 clips nothing.
func WithClipNorm(norm float64) TrainerOption { return func(o *trainerOptions) { o.clip = norm } }

// WithAccumulation takes a step along the mean gradient of so many batches, for
// batches larger than a graph of fixed shape or the memory holds.
func WithAccumulation(batches int) TrainerOption {
	return func(o *trainerOptions) { o.accumulate = batches }
}

// WithEngine runs the graph on a tensor engine, which takes over the operators
// that it implements; the batches' tensors are handed to it too. An [op.Arena] is
// recycled at the start of every run, so the values of a run last until the next.
func WithEngine(e tensor.Engine) TrainerOption { return func(o *trainerOptions) { o.engine = e } }

// WithMachine adds options of Gorgonia's for the machine, gorgonia.WithNaNWatch()
// for instance.
func WithMachine(opts ...gorgonia.VMOpt) TrainerOption {
	return func(o *trainerOptions) { o.machineOpts = append(o.machineOpts, opts...) }
}

// WithEval computes the mean loss over count batches after every so many steps.
func WithEval(every, count int, batches Batches) TrainerOption {
	return func(o *trainerOptions) { o.evalEvery, o.evalCount, o.evalBatches = every, count, batches }
}

// WithCallback calls f after every step; an error of f ends the run. Callbacks
// are called in the order in which they are given.
func WithCallback(f func(Metrics) error) TrainerOption {
	return func(o *trainerOptions) { o.callbacks = append(o.callbacks, f) }
}

// WithCheckpoint writes a checkpoint to path after every so many steps (0: none
// in between), when the run's context is done, and at the end of the run.
func WithCheckpoint(path string, every int) TrainerOption {
	return func(o *trainerOptions) { o.checkpointPath, o.checkpointEvery = path, every }
}

// WithProgress shows loss, speed and time left: on a terminal as a bar, on any
// other writer as a line now and then.
func WithProgress(w io.Writer) TrainerOption { return func(o *trainerOptions) { o.progress = w } }

// WithRNG saves the state of a source of random numbers in checkpoints, for
// batches that draw from it.
func WithRNG(r RNG) TrainerOption { return func(o *trainerOptions) { o.rng = r } }

// WithSettings saves strings that describe the model in checkpoints. Resume
// refuses a checkpoint whose strings of these names differ.
func WithSettings(settings map[string]string) TrainerOption {
	return func(o *trainerOptions) { o.settings = maps.Clone(settings) }
}

func (o *trainerOptions) check() error {
	switch {
	case o.solver == nil:
		return errors.New("graph: the solver is nil")
	case !(o.clip >= 0) || math.IsInf(o.clip, 1):
		return fmt.Errorf("graph: the clip norm is %v, want a finite number of 0 or more", o.clip)
	case o.accumulate < 1:
		return fmt.Errorf("graph: accumulation over %d batches, want 1 or more", o.accumulate)
	case o.evalEvery < 0 || o.evalEvery > 0 && (o.evalCount < 1 || o.evalBatches == nil):
		return fmt.Errorf("graph: evaluation every %d steps over %d batches, want 1 or more of both and a source", o.evalEvery, o.evalCount)
	case o.checkpointEvery < 0:
		return fmt.Errorf("graph: a checkpoint every %d steps, want 0 or more", o.checkpointEvery)
	case o.checkpointPath == "" && o.checkpointEvery > 0:
		return errors.New("graph: the path of the checkpoint is empty")
	}
	for i, f := range o.callbacks {
		if f == nil {
			return fmt.Errorf("graph: callback %d is nil", i)
		}
	}
	if o.schedule != nil {
		if err := takesLearningRate(o.solver); err != nil {
			return err
		}
	}
	if o.checkpointPath != "" {
		return canSave(o.solver)
	}
	return nil
}

func (o *trainerOptions) machineOptions() []gorgonia.VMOpt {
	opts := append([]gorgonia.VMOpt(nil), o.machineOpts...)
	if o.engine != nil {
		opts = append(opts, gorgonia.WithEngine(o.engine))
	}
	return opts
}
