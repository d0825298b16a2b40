package graph

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

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
	inputs  map[string]gorgonia.Nodes
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
	t.inputs = make(map[string]gorgonia.Nodes)
	for _, n := range t.graph.Inputs() {
		t.inputs[n.Name()] = append(t.inputs[n.Name()], n)
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
	machine, err := newMachine(t.graph, append(t.machineOptions(), gorgonia.BindDualValues(t.params...))...)
	if err != nil {
		return nil, err
	}
	t.machine = machine
	return t, nil
}

func (t *Trainer) check() error {
	if err := t.trainerOptions.check(); err != nil {
		return err
	}
	switch {
	case t.loss == nil:
		return errors.New("graph: loss is nil")
	case t.loss.Graph() == nil:
		return errors.New("graph: loss belongs to no graph")
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

// Step is the number of steps taken.
func (t *Trainer) Step() int { return t.step }

// Close releases the machines.
func (t *Trainer) Close() error {
	err := t.machine.Close()
	if t.forward != nil {
		err = errors.Join(err, t.forward.Close())
	}
	return err
}
