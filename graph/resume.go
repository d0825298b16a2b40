package graph

import (
	"encoding"
	"errors"
	"fmt"
	"maps"
	"slices"

	"gorgonia.org/gorgonia"
)

// RNG is a source of random numbers whose state can be saved, as rand.PCG and
// rand.ChaCha8 of math/rand/v2.
type RNG interface {
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}

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
	c.Solver.Kind = fmt.Sprintf("%T", t.solver)
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
// would have followed without the stop, if the trainer has the same options. The
// file must have been written by a trainer of the same parameters, settings and
// kinds of solver and RNG; else the error names what differs, and nothing has
// changed.
//
// Two things that Gorgonia keeps to itself cannot resume: the state of its solvers
// ([WithCheckpoint] refuses them) and the random numbers of its Dropout.
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
	if kind := fmt.Sprintf("%T", t.solver); state.Kind != kind {
		return fmt.Errorf("graph: the checkpoint's solver is %s, want %s", state.Kind, kind)
	}
	if s, ok := t.solver.(StatefulSolver); ok {
		return s.SetState(state, gorgonia.NodesToValueGrads(t.params))
	}
	return nil
}
