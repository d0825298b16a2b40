package graph

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
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
	c := &Checkpoint{Weights: make(State), Solver: SolverState{Tensors: make(State)}, Settings: make(map[string]string)}
	for key, to := range map[string]*int{"step": &c.Step, "solver_steps": &c.Solver.Steps} {
		if *to, err = strconv.Atoi(metadata[key]); err != nil || *to < 0 {
			return nil, fmt.Errorf("graph: %s: %s is %q, want a number of 0 or more", path, key, metadata[key])
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

// SaveWeights is a copy of the values of params by name, in their dtypes.
func SaveWeights(params gorgonia.Nodes) (State, error) {
	state := make(State, len(params))
	for _, p := range params {
		if state[p.Name()] != nil {
			return nil, fmt.Errorf("graph: two parameters are named %s", p.Name())
		}
		data, err := memory(p.Name(), p.Value())
		if err != nil {
			return nil, err
		}
		t := tensor.New(tensor.Of(p.Value().Dtype()), tensor.WithShape(p.Value().Shape().Clone()...))
		switch data := data.(type) {
		case []float32:
			copy(t.Float32s(), data)
		case []float64:
			copy(t.Float64s(), data)
		}
		state[p.Name()] = t
	}
	return state, nil
}

// LoadWeights sets params to the tensors of their names. Every parameter needs
// one, of its shape and dtype, and no tensor may be left over: the error names
// the first that is wrong, and then nothing has changed. A model that takes a
// part of a file, or another dtype, passes what it wants of it (see [Convert]).
func LoadWeights(params gorgonia.Nodes, state State) error {
	load, err := planLoad(params, state)
	if err != nil {
		return err
	}
	load()
	return nil
}

// planLoad checks all and changes nothing; load does the rest.
func planLoad(params gorgonia.Nodes, state State) (load func(), err error) {
	left := maps.Clone(state)
	var set []assignment
	for _, p := range params {
		t := state[p.Name()]
		if t == nil {
			return nil, fmt.Errorf("graph: there is no tensor %s", p.Name())
		}
		a, err := assign(p.Name(), p.Value(), t)
		if err != nil {
			return nil, err
		}
		set = append(set, a)
		delete(left, p.Name())
	}
	if len(left) > 0 {
		return nil, fmt.Errorf("graph: tensor %s belongs to no parameter", slices.Min(slices.Collect(maps.Keys(left))))
	}
	return func() {
		for _, a := range set {
			a.do()
		}
	}, nil
}

// assignment is a parameter and its new value, which fits.
type assignment struct {
	from *tensor.Dense
	to   any // []float32 or []float64 in the parameter's memory
}

// assign checks that t fits the value named name, and changes nothing.
func assign(name string, value gorgonia.Value, t *tensor.Dense) (assignment, error) {
	to, err := memory(name, value)
	if err != nil {
		return assignment{}, err
	}
	if t.Dtype() != value.Dtype() {
		return assignment{}, fmt.Errorf("graph: tensor %s is %v, want %v", name, t.Dtype(), value.Dtype())
	}
	if !slices.Equal(t.Shape(), value.Shape()) {
		return assignment{}, fmt.Errorf("graph: tensor %s has shape %v, want %v", name, t.Shape(), value.Shape())
	}
	return assignment{from: t, to: to}, rowMajor("tensor "+name, t)
}

func (a assignment) do() {
	switch to := a.to.(type) {
	case []float32:
		copy(to, a.from.Float32s())
	case []float64:
		copy(to, a.from.Float64s())
	}
}
