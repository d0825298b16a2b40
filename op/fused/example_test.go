package fused_test

import (
	"fmt"
	"log"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/op/fused"
)

// Moments computes the mean and the variance of every row of x [N, C], float64.
func Moments(x *gorgonia.Node) (mean, variance *gorgonia.Node, err error) {
	in, err := fused.OperandOf("x", x)
	if err != nil {
		return nil, nil, err
	}
	if len(in.Shape) != 2 || in.Dtype != tensor.Float64 {
		return nil, nil, fmt.Errorf("Moments: x is %v %v, want a float64 matrix", in.Dtype, in.Shape)
	}
	rows, cols := in.Shape[0], in.Shape[1]
	operator := &fused.Operator{
		Name:   "Moments",
		Inputs: []fused.Operand{in},
		Outputs: []fused.Operand{
			{Name: "mean", Dtype: in.Dtype, Shape: tensor.Shape{rows}},
			{Name: "variance", Dtype: in.Dtype, Shape: tensor.Shape{rows}},
		},
		BackwardInputs:  []int{0}, // x
		BackwardOutputs: []int{0}, // mean
		Forward: func(in []tensor.Tensor) ([]tensor.Tensor, error) {
			x := in[0].Data().([]float64)
			mean, variance := make([]float64, rows), make([]float64, rows)
			for i, v := range x {
				mean[i/cols] += v / float64(cols)
			}
			for i, v := range x {
				d := v - mean[i/cols]
				variance[i/cols] += d * d / float64(cols)
			}
			return []tensor.Tensor{vector(mean), vector(variance)}, nil
		},
		Backward: func(t fused.Tape) ([]tensor.Tensor, error) {
			x, mean := t.In[0].Data().([]float64), t.Out[0].Data().([]float64)
			dx := make([]float64, len(x))
			if t.Up[0] != nil { // the mean is used
				for i := range dx {
					dx[i] += t.Up[0].Data().([]float64)[i/cols] / float64(cols)
				}
			}
			if t.Up[1] != nil { // the variance is used
				for i, v := range x {
					dx[i] += t.Up[1].Data().([]float64)[i/cols] * 2 * (v - mean[i/cols]) / float64(cols)
				}
			}
			return []tensor.Tensor{tensor.New(tensor.WithShape(rows, cols), tensor.WithBacking(dx))}, nil
		},
	}
	applied, err := operator.Apply(x)
	if err != nil {
		return nil, nil, err
	}
	if mean, err = applied.Output(0); err != nil {
		return nil, nil, err
	}
	variance, err = applied.Output(1)
	return mean, variance, err
}

func vector(v []float64) tensor.Tensor {
	return tensor.New(tensor.WithShape(len(v)), tensor.WithBacking(v))
}

// An operator with two outputs and one backward.
func Example() {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("x"), gorgonia.WithShape(2, 4),
		gorgonia.WithValue(tensor.New(tensor.WithShape(2, 4), tensor.WithBacking([]float64{1, 2, 3, 4, 0, 0, 4, 4}))))
	mean, variance, err := Moments(x)
	if err != nil {
		log.Fatal(err)
	}
	loss := gorgonia.Must(gorgonia.Sum(gorgonia.Must(gorgonia.HadamardProd(mean, variance))))
	grads, err := gorgonia.Grad(loss, x)
	if err != nil {
		log.Fatal(err)
	}
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		log.Fatal(err)
	}
	fmt.Println("mean", mean.Value())
	fmt.Println("variance", variance.Value())
	fmt.Println("gradient", grads[0].Value().Data())
	// Output:
	// mean [2.5    2]
	// variance [1.25     4]
	// gradient [-1.5625 -0.3125 0.9375 2.1875 -1 -1 3 3]
}
