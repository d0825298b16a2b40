package gradcheck_test

import (
	"fmt"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/tests/gradcheck"
)

func ExampleCheck() {
	inputs := []gradcheck.Input{
		{Name: "w", Value: tensor.New(tensor.WithShape(2, 3), tensor.WithBacking([]float64{1, -2, 3, 0.5, 0, -1}))},
		{Name: "x", Value: tensor.New(tensor.WithShape(3), tensor.WithBacking([]float64{0.3, 0.1, -0.2}))},
	}
	build := func(g *gorgonia.ExprGraph, in gorgonia.Nodes) (*gorgonia.Node, error) {
		y, err := gorgonia.Mul(in[0], in[1])
		if err != nil {
			return nil, err
		}
		if y, err = gorgonia.Tanh(y); err != nil {
			return nil, err
		}
		return gorgonia.Sum(y)
	}
	report, err := gradcheck.Check(build, inputs, gradcheck.Config{Elements: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("loss %.4f, %d runs, worst error below 1e-8: %v\n", report.Loss, report.Evaluations, report.Worst.Error < 1e-8)
	// Output: loss -0.1257, 27 runs, worst error below 1e-8: true
}
