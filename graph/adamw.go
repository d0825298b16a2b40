package graph

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/internal/parallel"
)

// AdamW is Adam with decoupled weight decay (arXiv 1711.05101, algorithm 2), a
// [gorgonia.Solver] for float32 and float64 parameters:
//
//	m = beta1 m + (1 - beta1) g
//	v = beta2 v + (1 - beta2) g^2
//	w = w (1 - rate decay) - rate (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
//
// with g the gradient and t the step from 1. The arithmetic is in the
// parameter's dtype, that of the scalars in float64. Like Gorgonia's solvers,
// Step leaves the gradients at zero.
//
// Unlike Gorgonia's Adam and its AdamW it keeps m and v by the parameter's name
// and not by its place in the slice, so its state can be saved and a parameter
// can be added; decay is no L2 term in the gradient; and a failing Step changes
// nothing.
type AdamW struct {
	// LearningRate is the rate of the next step; a [Schedule] sets it.
	LearningRate float64
	// Beta1 and Beta2 are the decays of the moments, in [0, 1).
	Beta1, Beta2 float64
	// Eps is added to the root of the second moment.
	Eps float64
	// WeightDecay is the part of a weight that is lost in a step of rate 1.
	WeightDecay float64
	// Decays says which parameters WeightDecay is for; nil stands for none.
	Decays func(name string, shape tensor.Shape) bool

	steps   int
	moments map[string]*moments
}

// moments are m and v of one parameter, in its shape and dtype.
type moments struct{ m, v *tensor.Dense }

// NewAdamW has the given learning rate, betas of 0.9 and 0.999, an eps of 1e-8,
// and a weight decay of 0.01 for tensors of two dimensions and more: projections
// and embeddings, but no biases, gains, b and alpha.
func NewAdamW(rate float64) *AdamW {
	return &AdamW{
		LearningRate: rate, Beta1: 0.9, Beta2: 0.999, Eps: 1e-8, WeightDecay: 0.01,
		Decays: func(_ string, shape tensor.Shape) bool { return shape.Dims() >= 2 },
	}
}

// SetLearningRate sets the rate of the next step.
func (a *AdamW) SetLearningRate(rate float64) { a.LearningRate = rate }

// Step moves every parameter of model along its gradient and sets the gradient
// to zero. Every parameter must have a name ([gorgonia.Namer]) of its own, and
// value and gradient of one dtype, float32 or float64, in Go's memory. On an
// error, which names the parameter or the setting, nothing has changed.
func (a *AdamW) Step(model []gorgonia.ValueGrad) error {
	if err := a.validate(); err != nil {
		return err
	}
	updates := make([]func(), len(model))
	fresh := make(map[string]*moments, len(model))
	t := float64(a.steps + 1)
	for i, p := range model {
		name := nameOf(p)
		if name == "" {
			return fmt.Errorf("graph: parameter %d of %d has no name, which AdamW keeps its state by", i, len(model))
		}
		if fresh[name] != nil {
			return fmt.Errorf("graph: two parameters are named %s", name)
		}
		value, grad, err := gradient(p)
		if err != nil {
			return err
		}
		v := p.Value()
		s := a.moments[name]
		if s == nil {
			s = newMoments(v.Dtype(), v.Shape())
		} else if s.m.Dtype() != v.Dtype() || !s.m.Shape().Eq(v.Shape()) {
			return fmt.Errorf("graph: %s is %v %v, AdamW has seen it as %v %v", name, v.Dtype(), v.Shape(), s.m.Dtype(), s.m.Shape())
		}
		fresh[name] = s
		c := adamCoeffs{
			beta1: a.Beta1, beta2: a.Beta2, eps: a.Eps,
			rate:  a.LearningRate / (1 - math.Pow(a.Beta1, t)),
			scale: 1 / (1 - math.Pow(a.Beta2, t)),
			keep:  1,
		}
		if a.Decays != nil && a.Decays(name, v.Shape()) {
			c.keep = 1 - a.LearningRate*a.WeightDecay
		}
		if updates[i], err = adamUpdate(name, value, grad, s, c); err != nil {
			return err
		}
	}
	if a.moments == nil {
		a.moments = make(map[string]*moments, len(model))
	}
	for name, s := range fresh {
		a.moments[name] = s
	}
	for _, update := range updates {
		update()
	}
	a.steps++
	return nil
}

func (a *AdamW) validate() error {
	for _, s := range []struct {
		name      string
		value     float64
		below     float64
		wantBelow string
	}{
		{"LearningRate", a.LearningRate, math.Inf(1), "a finite number of 0 or more"},
		{"Beta1", a.Beta1, 1, "a number in [0, 1)"},
		{"Beta2", a.Beta2, 1, "a number in [0, 1)"},
		{"Eps", a.Eps, math.Inf(1), "a finite number of 0 or more"},
		{"WeightDecay", a.WeightDecay, math.Inf(1), "a finite number of 0 or more"},
	} {
		if !(s.value >= 0 && s.value < s.below) {
			return fmt.Errorf("graph: AdamW's %s is %v, want %s", s.name, s.value, s.wantBelow)
		}
	}
	return nil
}

func newMoments(dt tensor.Dtype, shape tensor.Shape) *moments {
	zeros := func() *tensor.Dense { return tensor.New(tensor.Of(dt), tensor.WithShape(shape.Clone()...)) }
	return &moments{m: zeros(), v: zeros()}
}

// adamCoeffs are the scalars of one parameter's step.
type adamCoeffs struct {
	beta1, beta2, eps float64
	rate              float64 // learning rate over the first bias correction
	scale             float64 // 1 over the second bias correction
	keep              float64 // what weight decay leaves of a weight
}

// adamUpdate is the step of one parameter, not yet taken.
func adamUpdate(name string, value, grad any, s *moments, c adamCoeffs) (func(), error) {
	m, err := memory("AdamW's first moment of "+name, s.m)
	if err != nil {
		return nil, err
	}
	v, err := memory("AdamW's second moment of "+name, s.v)
	if err != nil {
		return nil, err
	}
	switch w := value.(type) {
	case []float32:
		return func() { adamStep(w, grad.([]float32), m.([]float32), v.([]float32), c) }, nil
	default:
		return func() { adamStep(w.([]float64), grad.([]float64), m.([]float64), v.([]float64), c) }, nil
	}
}

// adamBlock is the number of weights that one goroutine updates at a time.
const adamBlock = 1 << 14

func adamStep[A dtype.Float](w, g, m, v []A, c adamCoeffs) {
	beta1, gain1 := A(c.beta1), A(1-c.beta1)
	beta2, gain2 := A(c.beta2), A(1-c.beta2)
	eps, rate, scale, keep := A(c.eps), A(c.rate), A(c.scale), A(c.keep)
	parallel.Blocks(len(w), adamBlock, func(_, lo, hi int) {
		w, g, m, v := w[lo:hi], g[lo:hi], m[lo:hi], v[lo:hi]
		for i := range w {
			m[i] = beta1*m[i] + gain1*g[i]
			v[i] = beta2*v[i] + gain2*g[i]*g[i]
			w[i] = keep*w[i] - rate*m[i]/(A(math.Sqrt(float64(scale*v[i])))+eps)
			g[i] = 0
		}
	})
}

// State is a copy of the moments ("m/<parameter>" and "v/<parameter>") and the
// number of steps taken.
func (a *AdamW) State() SolverState {
	s := SolverState{Steps: a.steps, Tensors: make(State, 2*len(a.moments))}
	for name, p := range a.moments {
		s.Tensors["m/"+name] = p.m.Clone().(*tensor.Dense)
		s.Tensors["v/"+name] = p.v.Clone().(*tensor.Dense)
	}
	return s
}

// SetState makes a continue from a state that State gave, with the parameters of
// model: the state must have both moments of each, in its shape and dtype, and no
// others (and none at all where no step was taken). On an error, which names the
// tensor, a is as before.
func (a *AdamW) SetState(s SolverState, model []gorgonia.ValueGrad) error {
	if s.Steps < 0 {
		return fmt.Errorf("graph: AdamW's state has %d steps, want 0 or more", s.Steps)
	}
	left := maps.Clone(s.Tensors)
	loaded := make(map[string]*moments, len(model))
	for i, p := range model {
		if s.Steps == 0 {
			break
		}
		if p == nil {
			return fmt.Errorf("graph: parameter %d is nil", i)
		}
		name := nameOf(p)
		if _, err := memory(name, p.Value()); err != nil {
			return err
		}
		fresh := newMoments(p.Value().Dtype(), p.Value().Shape())
		for key, to := range map[string]*tensor.Dense{"m/" + name: fresh.m, "v/" + name: fresh.v} {
			if s.Tensors[key] == nil {
				return fmt.Errorf("graph: AdamW's state has no tensor %s", key)
			}
			copied, err := assign(key, to, s.Tensors[key])
			if err != nil {
				return err
			}
			copied.do()
			delete(left, key)
		}
		loaded[name] = fresh
	}
	if len(left) > 0 {
		return fmt.Errorf("graph: AdamW's state has a tensor %s, which belongs to no parameter", slices.Min(slices.Collect(maps.Keys(left))))
	}
	a.steps, a.moments = s.Steps, loaded
	return nil
}
