package graph

import (
	"fmt"

	"gorgonia.org/gorgonia"
)

// rateSetter is a solver that takes a learning rate between steps.
type rateSetter interface{ SetLearningRate(float64) }

// takesLearningRate returns an error unless setLearningRate works on s.
func takesLearningRate(s gorgonia.Solver) error {
	switch s.(type) {
	case rateSetter, *gorgonia.RMSPropSolver, *gorgonia.AdamSolver, *gorgonia.VanillaSolver,
		*gorgonia.BarzilaiBorweinSolver, *gorgonia.Momentum, *gorgonia.AdamW:
		return nil
	}
	return fmt.Errorf("graph: a schedule is given and %T takes no learning rate", s)
}

func setLearningRate(s gorgonia.Solver, rate float64) {
	if r, ok := s.(rateSetter); ok {
		r.SetLearningRate(rate)
		return
	}
	gorgonia.WithLearnRate(rate)(s)
}

// canSave returns an error if s has a state that cannot be saved: a run that
// resumes without it would differ from one that goes on.
func canSave(s gorgonia.Solver) error {
	switch s.(type) {
	case StatefulSolver, *gorgonia.VanillaSolver:
		return nil
	}
	return fmt.Errorf("graph: a checkpoint is asked for and the state of %T cannot be saved: it is no StatefulSolver", s)
}
