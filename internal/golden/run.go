package golden

import (
	"fmt"
	"strings"

	"gonum.org/v1/gonum/floats"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/graph"
	"github.com/mhc-go/mhc/internal/device"
	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/op"
)

// run is one file on one machine in one dtype, and what came out.
type run struct {
	file    *file
	machine machine.Kind
	device  *device.Device
	dtype   tensor.Dtype // of the streams
	// resolution is the size of the rounding in the file's references; 0 where it
	// is far below every bound.
	resolution float64
	rows       []Row
}

// storage is an input node of the streams' kind, as it is stored or widened.
func (r *run) storage(g *gorgonia.ExprGraph, name string) (*gorgonia.Node, error) {
	t, err := r.file.tensor(name)
	if err != nil {
		return nil, err
	}
	if r.dtype != tensor.Float64 {
		return input(g, name, t), nil
	}
	return r.input(g, name)
}

// input is an input node in the dtype of the arithmetic.
func (r *run) input(g *gorgonia.ExprGraph, name string) (*gorgonia.Node, error) {
	v, err := r.file.wide(name)
	if err != nil {
		return nil, err
	}
	return r.node(g, name, v, r.file.tensors[name].Shape()...)
}

// node is an input node of numbers, in the dtype of the arithmetic.
func (r *run) node(g *gorgonia.ExprGraph, name string, v []float64, shape ...int) (*gorgonia.Node, error) {
	t := tensor.New(tensor.WithShape(shape...), tensor.WithBacking(v))
	if r.dtype != tensor.Float64 {
		var err error
		if t, err = graph.Convert(t, tensor.Float32); err != nil {
			return nil, err
		}
	}
	return input(g, name, t), nil
}

func input(g *gorgonia.ExprGraph, name string, t *tensor.Dense) *gorgonia.Node {
	return gorgonia.NewTensor(g, t.Dtype(), t.Dims(), gorgonia.WithName(name), gorgonia.WithShape(t.Shape()...), gorgonia.WithValue(t))
}

// weigh is the part of the loss that gives an output its upstream gradient.
func (r *run) weigh(out *gorgonia.Node, upstream string) (*gorgonia.Node, error) {
	up, err := r.input(out.Graph(), upstream)
	if err != nil {
		return nil, err
	}
	if out.Dtype() != up.Dtype() {
		if out, err = op.Cast(out, up.Dtype()); err != nil {
			return nil, err
		}
	}
	product, err := gorgonia.HadamardProd(out, up)
	if err != nil {
		return nil, err
	}
	return gorgonia.Sum(product)
}

// compute runs a program once.
func (r *run) compute(p machine.Program) (machine.Result, error) {
	m, err := machine.New(r.machine, p, r.device.Options()...)
	if err != nil {
		return machine.Result{}, err
	}
	defer m.Close()
	return m.Run()
}

// compare adds a row for a value and the reference of that name.
func (r *run) compare(name string, got gorgonia.Value, bound float64) error {
	want, err := r.file.wide(name)
	if err != nil {
		return err
	}
	v, err := numbers(name, got)
	if err != nil {
		return err
	}
	allowed, err := rounding(got.Dtype(), want, bound)
	if err != nil {
		return err
	}
	return r.compareNumbers(name, v, want, bound+allowed)
}

// compareNumbers adds a row.
func (r *run) compareNumbers(name string, got, want []float64, bound float64) error {
	if len(got) != len(want) {
		return fmt.Errorf("%s has %d numbers, the reference %d", name, len(got), len(want))
	}
	r.add(name, relative(got, want, r.resolution/bound), bound)
	return nil
}

func (r *run) add(name string, err, bound float64) {
	if e, ok := exceptions[exception{r.file.name, name, r.device.Engine != nil}]; ok && r.dtype == tensor.Float32 {
		bound = e
	}
	r.rows = append(r.rows, Row{
		File: r.file.name, Machine: r.machine.String(), Device: r.device.Name, Dtype: strings.ToLower(r.dtype.Name()),
		Tensor: name, Error: Number(err), Bound: Number(bound), Pass: err <= bound,
	})
}

// rounding is what a bound must allow for where a tensor is stored in 16 bits:
// the error of the rounded reference itself, and the bound once more. For a
// number y near its reference w, the rounded y is no further from y than the
// rounded w is: |round(y) - w| <= |round(w) - w| + 2 |y - w|. A bound above that
// error has it in it.
func rounding(stored tensor.Dtype, want []float64, bound float64) (float64, error) {
	if stored != op.BFloat16 && stored != op.Float16 {
		return 0, nil
	}
	t, err := graph.Convert(tensor.New(tensor.WithBacking(want)), stored)
	if err != nil {
		return 0, err
	}
	rounded, err := numbers("the rounded reference", t)
	if err != nil {
		return 0, err
	}
	if own := relative(rounded, want, 0); own > bound {
		return own + bound, nil
	}
	return 0, nil
}

// relative is the norm of got - want over that of want, or over floor if that is
// larger; where both are zero, got must be.
func relative(got, want []float64, floor float64) float64 {
	diff := make([]float64, len(want))
	for i, w := range want {
		diff[i] = got[i] - w
	}
	if d := norm(diff); d != 0 {
		return d / max(norm(want), floor)
	}
	return 0
}

// norm is the root of the sum of squares; those of the smallest numbers do not
// vanish.
func norm(x []float64) float64 { return floats.Norm(x, 2) }
