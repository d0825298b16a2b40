package gradcheck

import (
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/internal/machine"
)

// gradients are those of one machine, by input, flat.
type gradients [][]float64

// graph is one build of the graph under test with its own copy of the values.
type graph struct {
	g      *gorgonia.ExprGraph
	inputs []Input
	in     gorgonia.Nodes
	values [][]float64 // backing arrays of the inputs' tensors
	loss   *gorgonia.Node
}

// newGraph calls build. A panic becomes an error.
func newGraph(build Build, inputs []Input) (gr *graph, err error) {
	defer recovered(&err)
	gr = &graph{g: gorgonia.NewGraph(), inputs: inputs}
	for _, in := range inputs {
		data := slices.Clone(flat(in.Value))
		shape := in.Value.Shape()
		opts := []gorgonia.NodeConsOpt{gorgonia.WithName(in.Name)}
		var n *gorgonia.Node
		if shape.IsScalar() {
			n = gorgonia.NewScalar(gr.g, gorgonia.Float64, opts...)
		} else {
			t := tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
			n = gorgonia.NewTensor(gr.g, gorgonia.Float64, shape.Dims(), append(opts, gorgonia.WithShape(shape...), gorgonia.WithValue(t))...)
		}
		gr.in = append(gr.in, n)
		gr.values = append(gr.values, data)
	}
	if err := gr.bindScalars(); err != nil {
		return nil, err
	}
	gr.loss, err = build(gr.g, slices.Clone(gr.in))
	switch {
	case err != nil:
		return nil, fmt.Errorf("building the graph: %w", err)
	case gr.loss == nil:
		return nil, fmt.Errorf("building the graph: the loss is nil")
	case !gr.loss.IsScalar() || gr.loss.Dtype() != gorgonia.Float64:
		return nil, fmt.Errorf("building the graph: the loss is %v of shape %v, want a float64 scalar", gr.loss.Dtype(), gr.loss.Shape())
	}
	return gr, nil
}

// bindScalars hands the scalar inputs' values to their nodes, which hold a copy.
func (gr *graph) bindScalars() error {
	for i, n := range gr.in {
		if n.IsScalar() {
			if err := gorgonia.Let(n, gr.values[i][0]); err != nil {
				return err
			}
		}
	}
	return nil
}

// loss evaluates the loss, and owns the values that it is evaluated at.
type loss struct {
	*graph
	vm   *machine.Machine
	runs int
}

func newLoss(build Build, inputs []Input, opts []gorgonia.VMOpt) (*loss, error) {
	gr, err := newGraph(build, inputs)
	if err != nil {
		return nil, err
	}
	vm, err := machine.New(machine.Tape, machine.Program{Graph: gr.g, Outputs: gorgonia.Nodes{gr.loss}}, opts...)
	return &loss{graph: gr, vm: vm}, err
}

func (f *loss) close() { _ = f.vm.Close() }

// at is the loss at the present values.
func (f *loss) at() (float64, error) {
	f.runs++
	if err := f.bindScalars(); err != nil {
		return 0, err
	}
	r, err := f.vm.Run()
	if err != nil {
		return 0, err
	}
	v := scalar(r.Outputs[0])
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("the loss is %v, want a finite number", v)
	}
	return v, nil
}

// difference is the central difference of the loss as input i moves along v by
// step, and what rounding may add to it.
func (f *loss) difference(i int, v []float64, step float64) (d, noise float64, err error) {
	x := f.values[i]
	saved := slices.Clone(x)
	defer copy(x, saved)
	var at [2]float64
	for s, h := range []float64{step, -step} {
		for k := range x {
			x[k] = saved[k] + h*v[k]
		}
		if at[s], err = f.at(); err != nil {
			return 0, 0, fmt.Errorf("input %s moved by %.2g: %w", f.in[i].Name(), h, err)
		}
	}
	// Sums inside the graph round at the size of their terms, which is that of
	// the loss or, where they cancel, some times that.
	noise = 32 * ulp * max(math.Abs(at[0]), math.Abs(at[1])) / step
	return (at[0] - at[1]) / (2 * step), noise, nil
}

// differentiate computes the gradients of the inputs on a machine, and checks
// what can be without differences. A Tape runs twice: an op with state of its own
// tells. (A LispMachine cannot run a graph with a Reshape again.)
func differentiate(m Machine, build Build, inputs []Input, want float64, opts []gorgonia.VMOpt) (gradients, error) {
	gr, err := newGraph(build, inputs)
	if err != nil {
		return nil, err
	}
	vm, err := machine.New(machine.Kind(m), machine.Program{Graph: gr.g, Loss: gr.loss, Inputs: gr.in}, opts...)
	if err != nil {
		return nil, err
	}
	defer vm.Close()
	first, err := gr.gradients(vm, want)
	if err != nil {
		return nil, err
	}
	if m == Lisp {
		return first, nil
	}
	again, err := gr.gradients(vm, want)
	if err != nil {
		return nil, fmt.Errorf("second run: %w", err)
	}
	for i, in := range inputs {
		if !equal(first[i], again[i]) {
			return nil, fmt.Errorf("input %s has another gradient when the machine runs again", in.Name)
		}
	}
	return first, nil
}

// gradients runs a machine that differentiates.
func (gr *graph) gradients(vm *machine.Machine, want float64) (gradients, error) {
	r, err := vm.Run()
	if err != nil {
		return nil, err
	}
	if got := scalar(r.Loss); !(math.Abs(got-want) <= 1e-12*(1+math.Abs(want))) {
		return nil, fmt.Errorf("the loss is %v when differentiated, %v in the forward pass alone", got, want)
	}
	var g gradients
	for i, in := range gr.inputs {
		if !equal(gr.values[i], flat(in.Value)) {
			return nil, fmt.Errorf("the run wrote into input %s", in.Name)
		}
		v := r.Gradients[i]
		if v == nil {
			return nil, fmt.Errorf("input %s has no gradient", in.Name)
		}
		if v.Dtype() != tensor.Float64 || !v.Shape().Eq(in.Value.Shape()) {
			return nil, fmt.Errorf("gradient of input %s is %v of shape %v, want float64 %v", in.Name, v.Dtype(), v.Shape(), in.Value.Shape())
		}
		g = append(g, slices.Clone(flat(v)))
	}
	return g, nil
}

// flat is the data of a float64 value; a scalar gives one number.
func flat(v gorgonia.Value) []float64 {
	switch d := v.Data().(type) {
	case []float64:
		return d
	case float64:
		return []float64{d}
	}
	return nil
}

func scalar(v gorgonia.Value) float64 {
	if v == nil {
		return math.NaN()
	}
	if f := flat(v); len(f) == 1 {
		return f[0]
	}
	return math.NaN()
}

// equal is equality of numbers in which NaN equals itself.
func equal(x, y []float64) bool {
	return slices.EqualFunc(x, y, func(a, b float64) bool { return a == b || a != a && b != b })
}

func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("building the graph: panic: %v", p)
	}
}
