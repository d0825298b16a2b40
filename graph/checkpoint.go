package graph

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"gorgonia.org/gorgonia"
)

// Checkpoint is a training run at the end of a step: all that the run's rest
// depends on. Its file is a safetensors file whose tensors are the weights by
// their names, so other programs read them as they are, and the solver's state
// under "solver/"; the rest is in the metadata.
type Checkpoint struct {
	// Weights are the parameters by name.
	Weights State
	// Solver is the state of the solver.
	Solver SolverState
	// Step is the number of steps taken.
	Step int
	// RNG is the state of the source of random numbers, nil where there is none.
	RNG []byte
	// Settings are the strings that the program describes its model with.
	Settings map[string]string
}

// SolverState is the state of a solver.
type SolverState struct {
	// Kind is the solver's Go type; a [Trainer] sets it.
	Kind string
	// Steps is the number of steps taken.
	Steps int
	// Tensors is what the solver keeps, by names of its own.
	Tensors State
}

// StatefulSolver is a solver whose state can be saved. [AdamW] is one; of
// Gorgonia's solvers, VanillaSolver has no state and the others show theirs to
// nobody.
type StatefulSolver interface {
	gorgonia.Solver
	// State is a copy of the solver's state.
	State() SolverState
	// SetState makes the solver of model's parameters continue from a state, or
	// returns an error, which names the tensor that does not fit, and leaves the
	// solver as it is.
	SetState(s SolverState, model []gorgonia.ValueGrad) error
}

const (
	checkpointFormat = "mhc-checkpoint-1"
	solverPrefix     = "solver/"
	settingPrefix    = "setting/"
)

// Write writes c to a file, whole or not at all (see [WriteState]).
func (c *Checkpoint) Write(path string) error {
	metadata := map[string]string{
		"format":       checkpointFormat,
		"step":         strconv.Itoa(c.Step),
		"solver":       c.Solver.Kind,
		"solver_steps": strconv.Itoa(c.Solver.Steps),
	}
	if c.RNG != nil {
		metadata["rng"] = hex.EncodeToString(c.RNG)
	}
	for key, value := range c.Settings {
		metadata[settingPrefix+key] = value
	}
	state := make(State, len(c.Weights)+len(c.Solver.Tensors))
	for name, t := range c.Weights {
		if strings.HasPrefix(name, solverPrefix) {
			return fmt.Errorf("graph: a weight cannot be named %s: %s is for the solver's state", name, solverPrefix)
		}
		state[name] = t
	}
	for name, t := range c.Solver.Tensors {
		state[solverPrefix+name] = t
	}
	return WriteState(path, state, metadata)
}

// ReadCheckpoint reads what [Checkpoint.Write] wrote. The error says what is
// wrong with the file, and names the tensor where it is one.
func ReadCheckpoint(path string) (*Checkpoint, error) {
	state, metadata, err := ReadState(path, nil)
	if err != nil {
		return nil, err
	}
	if f := metadata["format"]; f != checkpointFormat {
		return nil, fmt.Errorf("graph: %s is no checkpoint: its format is %q, want %q", path, f, checkpointFormat)
	}
	c := &Checkpoint{Weights: make(State), Solver: SolverState{Kind: metadata["solver"], Tensors: make(State)}, Settings: make(map[string]string)}
	for _, n := range []struct {
		key string
		to  *int
	}{{"step", &c.Step}, {"solver_steps", &c.Solver.Steps}} {
		if *n.to, err = strconv.Atoi(metadata[n.key]); err != nil || *n.to < 0 {
			return nil, fmt.Errorf("graph: %s: %s is %q, want a number of 0 or more", path, n.key, metadata[n.key])
		}
	}
	if text, ok := metadata["rng"]; ok {
		if c.RNG, err = hex.DecodeString(text); err != nil {
			return nil, fmt.Errorf("graph: %s: rng: %w", path, err)
		}
	}
	for key, value := range metadata {
		if name, ok := strings.CutPrefix(key, settingPrefix); ok {
			c.Settings[name] = value
		}
	}
	for name, t := range state {
		if own, ok := strings.CutPrefix(name, solverPrefix); ok {
			c.Solver.Tensors[own] = t
		} else {
			c.Weights[name] = t
		}
	}
	return c, nil
}
