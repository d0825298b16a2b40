package graph_test

import (
	"fmt"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/graph"
)

// A layer in a training loop of one's own, with Gorgonia's machine and solver: it
// learns to bring the mean of its output to 1.5.
func ExampleLayer() {
	g := gorgonia.NewGraph()
	x := gorgonia.NewTensor(g, tensor.Float64, 3, gorgonia.WithName("x"), gorgonia.WithShape(2, 4, 3), gorgonia.WithInit(gorgonia.Ones()))
	layer, err := graph.NewLayer(g, "layer", graph.Config{
		MHC:      mhc.Paper.Config(4),
		Channels: 3,
		Dtype:    tensor.Float64,
		Rand:     rand.NewPCG(1, 2),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	h, err := layer.Apply(x, gorgonia.Square)
	if err != nil {
		fmt.Println(err)
		return
	}
	off := gorgonia.Must(gorgonia.Sub(gorgonia.Must(gorgonia.Mean(h)), gorgonia.NewConstant(1.5)))
	loss := gorgonia.Must(gorgonia.Square(off))
	params := layer.Learnables()
	if _, err := gorgonia.Grad(loss, params...); err != nil {
		fmt.Println(err)
		return
	}
	var value gorgonia.Value
	gorgonia.Read(loss, &value)

	vm := gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(params...))
	defer vm.Close()
	solver := gorgonia.NewVanillaSolver(gorgonia.WithLearnRate(0.1))
	for step := range 5 {
		if err := vm.RunAll(); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("step %d: loss %.3f\n", step, value.Data())
		if err := solver.Step(gorgonia.NodesToValueGrads(params)); err != nil {
			fmt.Println(err)
			return
		}
		vm.Reset()
	}
	// Output:
	// step 0: loss 0.250
	// step 1: loss 0.193
	// step 2: loss 0.153
	// step 3: loss 0.123
	// step 4: loss 0.101
}
