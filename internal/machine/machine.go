// Package machine runs a graph on either of Gorgonia's machines and reads what
// comes out, the same way for both.
package machine

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

// Kind is a kind of Gorgonia machine.
type Kind int

const (
	// Tape is a TapeMachine with the symbolic gradients of Grad.
	Tape Kind = iota
	// Lisp is a LispMachine, which differentiates as it runs.
	Lisp
)

// Kinds lists every kind.
var Kinds = []Kind{Tape, Lisp}

func (k Kind) String() string {
	switch k {
	case Tape:
		return "tape"
	case Lisp:
		return "lisp"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// Program is what a machine computes of a graph.
type Program struct {
	// Graph holds the nodes. For a LispMachine that differentiates, the loss must
	// be its only root.
	Graph *gorgonia.ExprGraph
	// Outputs are nodes whose values are read.
	Outputs gorgonia.Nodes
	// Loss is differentiated; nil runs the forward pass alone.
	Loss *gorgonia.Node
	// Inputs are those that Loss is differentiated by.
	Inputs gorgonia.Nodes
	// Discard says that nothing is read of what a Tape computes, which saves the
	// copies that its read statements make.
	Discard bool
}

// Result holds what a run computed. A TapeMachine's next run overwrites it.
type Result struct {
	Outputs   []gorgonia.Value // of Program.Outputs
	Loss      gorgonia.Value   // nil without a loss
	Gradients []gorgonia.Value // by Program.Inputs, where there is a loss
}

// Machine runs a program, any number of times; but a Lisp only once where the
// graph has a Reshape, which changes the value of its operand.
type Machine struct {
	kind    Kind
	program Program
	opts    []gorgonia.VMOpt

	tape   gorgonia.VM // of kind Tape
	result Result      // where tape's read statements write
}

// New prepares a machine; a Tape compiles here. It adds nodes to the graph.
func New(kind Kind, p Program, opts ...gorgonia.VMOpt) (m *Machine, err error) {
	defer recovered(&err)
	m = &Machine{kind: kind, program: p, opts: opts}
	if kind == Tape {
		return m, m.compile()
	}
	if p.Loss == nil {
		m.opts = append([]gorgonia.VMOpt{gorgonia.ExecuteFwdOnly()}, opts...)
	}
	return m, nil
}

func (m *Machine) compile() error {
	p := m.program
	m.result.Outputs = make([]gorgonia.Value, len(p.Outputs))
	m.result.Gradients = make([]gorgonia.Value, len(p.Inputs))
	var grads gorgonia.Nodes
	if p.Loss != nil {
		var err error
		if grads, err = gorgonia.Grad(p.Loss, p.Inputs...); err != nil {
			return err
		}
	}
	if !p.Discard {
		m.read(grads)
	}
	m.tape = gorgonia.NewTapeMachine(p.Graph, m.opts...)
	return nil
}

// read adds a read statement for everything of the result.
func (m *Machine) read(grads gorgonia.Nodes) {
	if m.program.Loss != nil {
		gorgonia.Read(m.program.Loss, &m.result.Loss)
	}
	for i, n := range m.program.Outputs {
		gorgonia.Read(n, &m.result.Outputs[i])
	}
	for i, n := range grads {
		gorgonia.Read(n, &m.result.Gradients[i])
	}
}

// Run computes the program with the values that the graph's inputs now have.
func (m *Machine) Run() (r Result, err error) {
	defer recovered(&err)
	if m.kind == Tape {
		err = m.tape.RunAll()
		m.tape.Reset()
		return m.result, err
	}
	return m.lisp()
}

func (m *Machine) lisp() (Result, error) {
	m.zeroGradients()
	// A LispMachine's Reset does not bring it back to the start.
	vm := gorgonia.NewLispMachine(m.program.Graph, m.opts...)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		return Result{}, err
	}
	var r Result
	for _, n := range m.program.Outputs {
		r.Outputs = append(r.Outputs, n.Value())
	}
	if m.program.Loss == nil {
		return r, nil
	}
	r.Loss = m.program.Loss.Value()
	for _, n := range m.program.Inputs {
		g, err := n.Grad()
		if err != nil {
			return Result{}, fmt.Errorf("input %s: %w", n.Name(), err)
		}
		r.Gradients = append(r.Gradients, g)
	}
	return r, nil
}

// zeroGradients clears what an earlier run has added up in the inputs.
func (m *Machine) zeroGradients() {
	for _, n := range m.program.Inputs {
		if g, err := n.Grad(); err == nil && g != nil {
			gorgonia.ZeroValue(g)
		}
	}
}

// Close frees the machine.
func (m *Machine) Close() error {
	if m.tape != nil {
		return m.tape.Close()
	}
	return nil
}

// recovered turns a panic of Gorgonia's constructors into an error.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("panic: %v", p)
	}
}
