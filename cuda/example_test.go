package cuda_test

import (
	"fmt"
	"log"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/cuda"
	"github.com/mhc-go/mhc/cuda/plan"
	"github.com/mhc-go/mhc/op"
)

// A graph runs on the GPU where there is one, and on the CPU where not.
func Example() {
	g := gorgonia.NewGraph()
	x := gorgonia.NewTensor(g, tensor.Float32, 3, gorgonia.WithName("x"), gorgonia.WithShape(1, 2, 3),
		gorgonia.WithValue(tensor.New(tensor.WithShape(1, 2, 3), tensor.WithBacking([]float32{1, 2, 3, 4, 5, 6}))))
	h := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithName("h_pre"), gorgonia.WithShape(1, 2),
		gorgonia.WithValue(tensor.New(tensor.WithShape(1, 2), tensor.WithBacking([]float32{0.5, 2}))))
	y, err := op.Pre(x, h)
	if err != nil {
		log.Fatal(err)
	}

	var opts []gorgonia.VMOpt
	if eng, err := cuda.New(); err == nil {
		defer eng.Close()
		opts = append(opts, gorgonia.WithEngine(eng))
	}
	vm := gorgonia.NewTapeMachine(g, opts...)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		log.Fatal(err)
	}
	fmt.Println(y.Value().Data())
	// Output: [8.5 11 13.5]
}

// A program with its data on the device runs operators there and copies what it
// wants to see.
func ExampleStream_Run() {
	eng, err := cuda.New()
	if err != nil {
		log.Fatal(err) // says why there is no usable GPU
	}
	defer eng.Close()
	s, err := eng.NewStream()
	if err != nil {
		log.Fatal(err)
	}
	const tokens, streams, channels = 2048, 4, 4096
	x, err := eng.NewBuffer(tokens * streams * channels * 2)
	if err != nil {
		log.Fatal(err)
	}
	sum, err := eng.NewBuffer(tokens * channels * 2)
	if err != nil {
		log.Fatal(err)
	}
	err = s.Run(&plan.StreamsBackward{
		Tokens: tokens, Streams: streams, Channels: channels, XType: plan.BFloat16, G: x.Ptr(), DX: sum.Ptr(),
	})
	if err != nil {
		log.Fatal(err)
	}
	row := make([]byte, channels*2)
	if err := s.Read(row, sum.Ptr()); err != nil {
		log.Fatal(err)
	}
}
