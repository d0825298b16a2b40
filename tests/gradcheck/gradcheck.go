// Package gradcheck compares the gradients that Gorgonia computes for a graph
// with central differences in float64, for ops of any origin.
//
// A graph is given as a function that builds it from float64 inputs and returns
// its scalar loss. [Check] differentiates it with Grad on a TapeMachine (SymDiff)
// and on a LispMachine (DoDiff), and for every input compares
//
//	<gradient, v>   with   (loss(x + h v) - loss(x - h v)) / 2h
//
// for random directions v, at two evaluations a direction whatever the size of
// the input, or for every element on demand. A direction that disagrees is
// followed by a search of that input, so that the error names the element.
//
// It also fails where a machine gives another loss than the forward pass alone,
// writes into an input, returns a gradient of another shape than its input, or
// gives other gradients when run again. In particular it finds an op without
// DoDiff, which a LispMachine takes for a constant without a word.
package gradcheck

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/internal/machine"
)

// Input is an independent variable of the graph under test.
type Input struct {
	// Name is the node's name; it must be unique in the graph.
	Name string
	// Value is where the gradient is checked: float64 and contiguous, a scalar
	// included. It is copied, never written.
	Value *tensor.Dense
}

// Build adds a computation to g and returns its loss, a float64 scalar. in holds
// one node an input, in order. It is called once a machine, and must build the
// same graph every time: what is random in it comes from a seed. Every input has
// to reach the loss, and for the LispMachine the loss must be the only root.
type Build func(g *gorgonia.ExprGraph, in gorgonia.Nodes) (*gorgonia.Node, error)

// Machine is a kind of Gorgonia machine.
type Machine machine.Kind

const (
	// Tape is a TapeMachine with the symbolic gradients of Grad.
	Tape = Machine(machine.Tape)
	// Lisp is a LispMachine, which differentiates as it runs.
	Lisp = Machine(machine.Lisp)
)

func (m Machine) String() string { return machine.Kind(m).String() }

// Config holds the settings of a check. The zero value checks both machines
// along two directions an input, to a relative error of 1e-6.
type Config struct {
	// Machines are the machines to check; none means both.
	Machines []Machine
	// Directions is the number of random directions an input; 0 means 2.
	Directions int
	// Elements also compares every element of every input, at two evaluations
	// each.
	Elements bool
	// Step is h of the central difference, in units of the root mean square of
	// the input (of 1 where that is 0); 0 means the cube root of 2^-52.
	Step float64
	// Tolerance bounds [Difference.Error]; 0 means 1e-6.
	Tolerance float64
	// Seed chooses the directions.
	Seed uint64
	// Options go to every machine, such as gorgonia.WithEngine(e).
	Options []gorgonia.VMOpt
}

// Report is the outcome of a check.
type Report struct {
	// Loss is the value of the loss at the inputs.
	Loss float64
	// Worst is the comparison with the largest error; of those compared along
	// directions and by element, an element where one is over the tolerance.
	Worst Difference
	// Evaluations counts the runs of the forward pass.
	Evaluations int
}

// Difference is one comparison of a derivative with its central difference.
type Difference struct {
	Machine Machine
	// Input is the name of the input along which the loss was differentiated.
	Input string
	// Index is the element; nil where the derivative is along a random direction.
	Index []int
	// Gradient is the derivative that the machine gives.
	Gradient float64
	// Numeric is the central difference.
	Numeric float64
	// Error is |Gradient - Numeric| over the norm of the input's gradient (for an
	// element its root mean square) or over |Numeric| where that is larger. What
	// rounding of the loss alone may cause does not exceed the tolerance.
	Error float64
	// Zero says that the machine's gradient of the whole input is zero.
	Zero bool
}

func (d Difference) String() string {
	where := "along a random direction"
	if d.Index != nil {
		where = fmt.Sprintf("element %v", d.Index)
	}
	s := fmt.Sprintf("%v: gradient of %s, %s: %.9g, central difference %.9g, relative error %.2g",
		d.Machine, d.Input, where, d.Gradient, d.Numeric, d.Error)
	if d.Zero && d.Numeric != 0 {
		s += " (the whole gradient is zero"
		if d.Machine == Lisp {
			s += ": an op on the way may lack DoDiff"
		}
		s += ")"
	}
	return s
}

// Mismatch is the error of a gradient that disagrees with the central
// difference.
type Mismatch struct {
	Difference
	Tolerance float64
}

func (m *Mismatch) Error() string {
	return fmt.Sprintf("gradcheck: %v, want %.2g or less", m.Difference, m.Tolerance)
}

// Check differentiates the loss of build on every machine of cfg, and compares
// with central differences at the inputs' values. The error is a [*Mismatch]
// where a gradient is wrong; the report is then complete. Any other error says
// why the graph cannot be checked.
//
// Panics of build and of Gorgonia's constructors become errors; one inside an
// op's Do or DoDiff is on a goroutine of the machine and ends the program.
func Check(build Build, inputs []Input, cfg Config) (Report, error) {
	cfg = cfg.withDefaults()
	if err := validate(build, inputs, cfg); err != nil {
		return Report{}, fmt.Errorf("gradcheck: %w", err)
	}
	f, err := newLoss(build, inputs, cfg.Options)
	if err != nil {
		return Report{}, fmt.Errorf("gradcheck: forward pass: %w", err)
	}
	defer f.close()
	var report Report
	if report.Loss, err = f.at(); err != nil {
		return Report{}, fmt.Errorf("gradcheck: forward pass: %w", err)
	}
	grads := make([]gradients, len(cfg.Machines))
	for i, m := range cfg.Machines {
		if grads[i], err = differentiate(m, build, inputs, report.Loss, cfg.Options); err != nil {
			return report, fmt.Errorf("gradcheck: %v: %w", m, err)
		}
	}
	c := comparison{cfg: cfg, inputs: inputs, loss: f, grads: grads}
	if err := c.run(); err != nil {
		return report, fmt.Errorf("gradcheck: %w", err)
	}
	report.Worst, report.Evaluations = c.worst, f.runs
	if !(report.Worst.Error <= cfg.Tolerance) {
		return report, &Mismatch{report.Worst, cfg.Tolerance}
	}
	return report, nil
}

// Test is Check for a test: it fails t with the error and goes on.
func Test(t testing.TB, build Build, inputs []Input, cfg Config) Report {
	t.Helper()
	report, err := Check(build, inputs, cfg)
	if err != nil {
		t.Error(err)
	}
	return report
}

func (c Config) withDefaults() Config {
	if len(c.Machines) == 0 {
		c.Machines = []Machine{Tape, Lisp}
	}
	if c.Directions == 0 {
		c.Directions = 2
	}
	if c.Step == 0 {
		c.Step = math.Cbrt(ulp)
	}
	if c.Tolerance == 0 {
		c.Tolerance = 1e-6
	}
	return c
}

func validate(build Build, inputs []Input, cfg Config) error {
	if build == nil {
		return fmt.Errorf("build is nil, want a function that returns the loss")
	}
	if len(inputs) == 0 {
		return fmt.Errorf("no inputs, want 1 or more")
	}
	seen := map[string]bool{}
	for i, in := range inputs {
		switch {
		case in.Name == "" || seen[in.Name]:
			return fmt.Errorf("input %d is named %q, want a unique name", i, in.Name)
		case in.Value == nil:
			return fmt.Errorf("input %s is nil, want a float64 tensor", in.Name)
		case in.Value.Dtype() != tensor.Float64:
			return fmt.Errorf("input %s is %v, want float64", in.Name, in.Value.Dtype())
		case in.Value.RequiresIterator() || !in.Value.DataOrder().IsRowMajor():
			return fmt.Errorf("input %s is not contiguous and row-major", in.Name)
		}
		seen[in.Name] = true
	}
	for _, m := range cfg.Machines {
		if !slices.Contains(machine.Kinds, machine.Kind(m)) {
			return fmt.Errorf("setting Machines holds %v, want Tape or Lisp", m)
		}
	}
	if cfg.Directions < 0 {
		return fmt.Errorf("setting Directions is %d, want 0 or more", cfg.Directions)
	}
	if !(cfg.Step > 0) || !(cfg.Tolerance > 0) {
		return fmt.Errorf("setting Step is %v and Tolerance %v, want positive numbers", cfg.Step, cfg.Tolerance)
	}
	return nil
}

// ulp is the spacing of float64 at 1.
const ulp = 0x1p-52

// comparison walks over the inputs and keeps the worst difference.
type comparison struct {
	cfg    Config
	inputs []Input
	loss   *loss
	grads  []gradients // one a machine
	worst  Difference
}

func (c *comparison) run() error {
	rng := rand.New(rand.NewPCG(c.cfg.Seed, 0))
	for i := range c.inputs {
		step := c.cfg.Step * scale(c.loss.values[i])
		suspects := map[Machine]bool{}
		for range c.cfg.Directions {
			v := make([]float64, len(c.loss.values[i]))
			for k := range v {
				v[k] = rng.NormFloat64()
			}
			numeric, noise, err := c.loss.difference(i, v, step)
			if err != nil {
				return err
			}
			for m, g := range c.grads {
				d := c.compare(m, i, dot(g[i], v), numeric, norm(g[i]), noise)
				if !(d.Error <= c.cfg.Tolerance) {
					suspects[d.Machine] = true
				}
				c.keep(d)
			}
		}
		if c.cfg.Elements || len(suspects) > 0 {
			if err := c.elements(i, step, suspects); err != nil {
				return err
			}
		}
	}
	return nil
}

// elements compares every element of input i: of the suspects, or on all
// machines where the configuration asks for it.
func (c *comparison) elements(i int, step float64, suspects map[Machine]bool) error {
	v := make([]float64, len(c.loss.values[i]))
	for k := range v {
		v[k] = 1
		numeric, noise, err := c.loss.difference(i, v, step)
		if err != nil {
			return err
		}
		v[k] = 0
		for m, g := range c.grads {
			if !c.cfg.Elements && !suspects[c.cfg.Machines[m]] {
				continue
			}
			d := c.compare(m, i, g[i][k], numeric, norm(g[i])/math.Sqrt(float64(len(v))), noise)
			d.Index = index(k, c.inputs[i].Value.Shape())
			c.keep(d)
		}
	}
	return nil
}

// compare makes the difference of one derivative on machine m.
func (c *comparison) compare(m, i int, gradient, numeric, size, noise float64) Difference {
	size = max(size, math.Abs(numeric), noise/c.cfg.Tolerance)
	d := Difference{
		Machine: c.cfg.Machines[m], Input: c.inputs[i].Name,
		Gradient: gradient, Numeric: numeric, Error: math.Abs(gradient - numeric),
		Zero: norm(c.grads[m][i]) == 0,
	}
	if size > 0 {
		d.Error /= size
	}
	return d
}

// keep remembers d if it is worse than what is known. An element over the
// tolerance says more than any direction; not a number is worst of all.
func (c *comparison) keep(d Difference) {
	rank := func(d Difference) (bool, float64) {
		e := d.Error
		if math.IsNaN(e) {
			e = math.Inf(1)
		}
		return d.Index != nil && e > c.cfg.Tolerance, e
	}
	element, err := rank(d)
	oldElement, oldErr := rank(c.worst)
	if c.worst.Input == "" || element && !oldElement || element == oldElement && err > oldErr {
		c.worst = d
	}
}

// scale is the root mean square of x, or 1 if that is 0.
func scale(x []float64) float64 {
	if s := norm(x) / math.Sqrt(float64(len(x))); s > 0 {
		return s
	}
	return 1
}

func norm(x []float64) float64 { return math.Sqrt(dot(x, x)) }

func dot(x, y []float64) float64 {
	var s float64
	for i, v := range x {
		s += v * y[i]
	}
	return s
}

// index is the position of element k of a row-major tensor; [] for a scalar.
func index(k int, shape tensor.Shape) []int {
	at := make([]int, len(shape))
	for i := len(shape) - 1; i >= 0; i-- {
		at[i] = k % shape[i]
		k /= shape[i]
	}
	return at
}
