package graph

import (
	"errors"
	"fmt"
	"slices"

	"gorgonia.org/gorgonia"
)

// differentiate gives every parameter a gradient node, unless Grad has done so.
func (t *Trainer) differentiate() (err error) {
	without := slices.IndexFunc(t.params, func(p *gorgonia.Node) bool { return p.Deriv() == nil })
	with := slices.ContainsFunc(t.params, func(p *gorgonia.Node) bool { return p.Deriv() != nil })
	switch {
	case with && without >= 0:
		return fmt.Errorf("graph: parameter %s has no gradient and others have one: call Grad with all or leave it to the trainer", t.params[without].Name())
	case with && !isCost(t.loss):
		return errors.New("graph: the parameters have gradients of another cost than the loss")
	case with:
		return nil
	}
	defer recovered(&err, "graph: the loss cannot be differentiated")
	if _, err := gorgonia.Grad(t.loss, t.params...); err != nil {
		return fmt.Errorf("graph: the loss cannot be differentiated: %w", err)
	}
	return nil
}

// isCost says whether Grad was called with n as the cost: n has a gradient, and
// none of what is computed from it has.
func isCost(n *gorgonia.Node) bool {
	if n.Deriv() == nil {
		return false
	}
	for it := n.Graph().To(n.ID()); it.Next(); {
		if it.Node().(*gorgonia.Node).Deriv() != nil {
			return false
		}
	}
	return true
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

// forwardMachine is a machine for the part of the graph that computes the loss.
func (t *Trainer) forwardMachine() (m gorgonia.VM, err error) {
	defer recovered(&err, "graph: the loss alone cannot be compiled")
	var inputs gorgonia.Nodes
	for n := range gorgonia.WalkGraph(t.loss) {
		if n.IsVar() {
			inputs = inputs.Add(n)
		}
	}
	program, locations, err := gorgonia.CompileFunction(t.graph, inputs, gorgonia.Nodes{t.read})
	if err != nil {
		return nil, fmt.Errorf("graph: the loss alone cannot be compiled: %w", err)
	}
	return newMachine(t.graph, append(t.machineOptions(), gorgonia.WithPrecompiled(program, locations))...)
}
