package op_test

import (
	"fmt"
	"log"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/op"
	"github.com/mhc-go/mhc/sinkhorn"
)

// One mHC layer around tanh, differentiated and run. With phi = 0 the
// coefficients come from b alone: here h_pre = 1/2 for both streams, h_post = 1
// and h_res near the identity, a plain residual connection.
func Example() {
	const tokens, n, channels = 1, 2, 3
	cfg := mhc.Liger.Config(n)
	g := gorgonia.NewGraph()
	input := func(name string, shape tensor.Shape, data []float32) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float32, len(shape), gorgonia.WithName(name), gorgonia.WithShape(shape...),
			gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))))
	}
	embedded := input("embedded", tensor.Shape{tokens, channels}, []float32{-1, 0, 2})
	phi := input("phi", tensor.Shape{n * channels, cfg.Width()}, make([]float32, n*channels*cfg.Width()))
	b := input("b", tensor.Shape{cfg.Width()}, []float32{0, 0, 0, 0, 10, 0, 0, 10})
	alpha := input("alpha", tensor.Shape{3}, []float32{0.01, 0.01, 0.01})

	x := must(op.Streams(embedded, n))
	c, err := op.Coeffs(x, phi, b, alpha, cfg)
	if err != nil {
		log.Fatal(err)
	}
	read := must(op.Pre(x, must(c.Pre())))
	y := must(op.PostRes(x, must(gorgonia.Tanh(read)), must(c.Post()), must(c.Res()), cfg.Apply))

	loss := must(gorgonia.Sum(y))
	grads, err := gorgonia.Grad(loss, phi, b)
	if err != nil {
		log.Fatal(err)
	}
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.3f\n", y.Value().Data())
	fmt.Printf("gradient of b, pre and post: %.3f\n", grads[1].Value().Data().([]float32)[:2*n])
	// Output:
	// [-1.762 0.000 2.964 -1.762 0.000 2.964]
	// gradient of b, pre and post: [-0.139 -0.139 0.101 0.101]
}

func must(n *gorgonia.Node, err error) *gorgonia.Node {
	if err != nil {
		log.Fatal(err)
	}
	return n
}

// The projection alone, as a node between built-in ones.
func ExampleSinkhorn() {
	g := gorgonia.NewGraph()
	logits := gorgonia.NewMatrix(g, tensor.Float64, gorgonia.WithName("logits"), gorgonia.WithShape(2, 2),
		gorgonia.WithValue(tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{2, 0, 1, 3}))))
	p, err := op.Sinkhorn(logits, sinkhorn.Config{Start: sinkhorn.Exp, End: sinkhorn.Rows, Iterations: 20})
	if err != nil {
		log.Fatal(err)
	}
	vm := gorgonia.NewTapeMachine(g)
	defer vm.Close()
	if err := vm.RunAll(); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%.4f\n", p.Value().Data())
	// Output: [0.8808 0.1192 0.1192 0.8808]
}

// Streams stored in 16 bits, with float32 around them.
func ExampleCast() {
	g := gorgonia.NewGraph()
	x := gorgonia.NewVector(g, tensor.Float32, gorgonia.WithName("x"), gorgonia.WithShape(2),
		gorgonia.WithValue(tensor.New(tensor.WithShape(2), tensor.WithBacking([]float32{1.001, 3}))))
	stored := must(op.Streams(must(op.Cast(x, op.BFloat16)), 2))
	y := must(op.Cast(stored, tensor.Float32))
	loss := must(gorgonia.Sum(y))
	if err := gorgonia.NewLispMachine(g).RunAll(); err != nil {
		log.Fatal(err)
	}
	dx, err := x.Grad()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stored.Dtype(), loss.Value(), dx)
	// Output: BFloat16 8 [2  2]
}
