package graph

import (
	"fmt"
	"maps"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// SaveWeights is a copy of the values of params by name, in their dtypes.
func SaveWeights(params gorgonia.Nodes) (State, error) {
	state := make(State, len(params))
	for i, p := range params {
		if p == nil {
			return nil, fmt.Errorf("graph: parameter %d is nil", i)
		}
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
	for i, p := range params {
		if p == nil {
			return nil, fmt.Errorf("graph: parameter %d is nil", i)
		}
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
