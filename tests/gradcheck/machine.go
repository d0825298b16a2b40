package gradcheck

import (
	"fmt"
	"math"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
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
	defer recovered("building the graph", &err)
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

// unwritten returns an error that names an input whose value a run has changed.
func (gr *graph) unwritten() error {
	for i, in := range gr.inputs {
		if !equal(gr.values[i], flat(in.Value)) {
			return fmt.Errorf("the run wrote into input %s", in.Name)
		}
	}
	return nil
}

// loss evaluates the loss, and owns the values that it is evaluated at.
type loss struct {
	*graph
	vm    gorgonia.VM
	value gorgonia.Value
	runs  int
}

func newLoss(build Build, inputs []Input, opts []gorgonia.VMOpt) (f *loss, err error) {
	defer recovered("compiling", &err)
	gr, err := newGraph(build, inputs)
	if err != nil {
		return nil, err
	}
	f = &loss{graph: gr}
	gorgonia.Read(gr.loss, &f.value)
	f.vm = gorgonia.NewTapeMachine(gr.g, opts...)
	return f, nil
}

func (f *loss) close() { _ = f.vm.Close() }

// at is the loss at the present values.
func (f *loss) at() (float64, error) {
	f.runs++
	if err := f.bindScalars(); err != nil {
		return 0, err
	}
	if err := f.vm.RunAll(); err != nil {
		return 0, err
	}
	f.vm.Reset()
	v := scalar(f.value)
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
// what can be without differences.
func differentiate(m Machine, build Build, inputs []Input, want float64, opts []gorgonia.VMOpt) (g gradients, err error) {
	defer recovered("differentiating", &err)
	gr, err := newGraph(build, inputs)
	if err != nil {
		return nil, err
	}
	run := gr.tape
	if m == Lisp {
		run = gr.lisp
	}
	got, grads, err := run(opts)
	if err != nil {
		return nil, err
	}
	if !(math.Abs(got-want) <= 1e-12*(1+math.Abs(want))) {
		return nil, fmt.Errorf("the loss is %v when differentiated, %v in the forward pass alone", got, want)
	}
	for i, in := range inputs {
		v := grads[i]
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

// tape runs Grad's gradients twice: an op with state of its own tells.
func (gr *graph) tape(opts []gorgonia.VMOpt) (loss float64, grads []gorgonia.Value, err error) {
	nodes, err := gorgonia.Grad(gr.loss, gr.in...)
	if err != nil {
		return 0, nil, err
	}
	var l gorgonia.Value
	gorgonia.Read(gr.loss, &l)
	grads = make([]gorgonia.Value, len(nodes))
	for i, n := range nodes {
		gorgonia.Read(n, &grads[i])
	}
	vm := gorgonia.NewTapeMachine(gr.g, opts...)
	defer vm.Close()
	run := func() ([][]float64, error) {
		err := vm.RunAll()
		vm.Reset()
		if err == nil {
			err = gr.unwritten()
		}
		data := make([][]float64, len(grads))
		for i, v := range grads {
			if err == nil {
				data[i] = slices.Clone(flat(v))
			}
		}
		return data, err
	}
	first, err := run()
	if err != nil {
		return 0, nil, err
	}
	again, err := run()
	if err != nil {
		return 0, nil, fmt.Errorf("second run: %w", err)
	}
	for i := range first {
		if !equal(first[i], again[i]) {
			return 0, nil, fmt.Errorf("input %s has another gradient when the machine runs again", gr.in[i].Name())
		}
	}
	return scalar(l), grads, nil
}

func (gr *graph) lisp(opts []gorgonia.VMOpt) (loss float64, grads []gorgonia.Value, err error) {
	vm := gorgonia.NewLispMachine(gr.g, opts...)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		return 0, nil, err
	}
	if err := gr.unwritten(); err != nil {
		return 0, nil, err
	}
	for _, n := range gr.in {
		v, err := n.Grad()
		if err != nil {
			return 0, nil, fmt.Errorf("input %s: %w", n.Name(), err)
		}
		grads = append(grads, v)
	}
	return scalar(gr.loss.Value()), grads, nil
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

func recovered(doing string, err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%s: panic: %v", doing, p)
	}
}
