package graph

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

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

// setTraining tells the ops that know training from evaluation which it is. An op
// belongs to the graph and not to a machine, so gorgonia.EvalMode for one machine
// would hold for the other too.
func setTraining(g *gorgonia.ExprGraph, on bool) error {
	for _, n := range g.AllNodes() {
		if o, ok := n.Op().(gorgonia.TrainModeOp); ok {
			if err := o.SetTraining(on); err != nil {
				return fmt.Errorf("graph: %s: %w", n.Name(), err)
			}
		}
	}
	return nil
}
