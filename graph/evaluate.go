package graph

import (
	"context"
	"errors"
	"fmt"

	"gorgonia.org/gorgonia"
)

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
