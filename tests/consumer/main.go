// Command consumer is a program of another module that trains a layer for a few
// steps, with nothing in its go.mod but what it imports: Gorgonia alone would
// panic at the start of every program on current Go.
package main

import (
	"fmt"
	"log"
	"math/rand/v2"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/graph"
)

const (
	tokens, streams, channels = 8, 4, 16
	steps                     = 10
)

func main() {
	g := gorgonia.NewGraph()
	stack, err := graph.NewStack(g, "blocks", 2, graph.Config{
		MHC: mhc.Liger.Config(streams), Channels: channels, Rand: rand.NewPCG(1, 2),
	})
	check(err)
	in, target := random(g, "in"), random(g, "target")

	x, err := stack.In(in)
	check(err)
	for _, layer := range stack.Layers() {
		x, err = layer.Apply(x, gorgonia.Tanh)
		check(err)
	}
	out, err := stack.Out(x)
	check(err)
	diff, err := gorgonia.Sub(out, target)
	check(err)
	square, err := gorgonia.Square(diff)
	check(err)
	loss, err := gorgonia.Mean(square)
	check(err)

	params := stack.Learnables()
	_, err = gorgonia.Grad(loss, params...)
	check(err)
	var value gorgonia.Value
	gorgonia.Read(loss, &value)
	vm := gorgonia.NewTapeMachine(g, gorgonia.BindDualValues(params...))
	defer vm.Close()
	solver := graph.NewAdamW(0.01)
	var first, last float32
	for step := range steps {
		check(vm.RunAll())
		last = value.Data().(float32)
		if step == 0 {
			first = last
		}
		check(solver.Step(gorgonia.NodesToValueGrads(params)))
		vm.Reset()
	}
	if !(last < first) {
		log.Fatalf("the loss went from %v to %v in %d steps", first, last, steps)
	}
	fmt.Printf("loss %.4f after 1 step, %.4f after %d\n", first, last, steps)
}

// random is an input [tokens, channels] of standard normal numbers.
func random(g *gorgonia.ExprGraph, name string) *gorgonia.Node {
	rng := rand.New(rand.NewPCG(3, uint64(len(name))))
	data := make([]float32, tokens*channels)
	for i := range data {
		data[i] = float32(rng.NormFloat64())
	}
	value := tensor.New(tensor.WithShape(tokens, channels), tensor.WithBacking(data))
	return gorgonia.NewMatrix(g, gorgonia.Float32, gorgonia.WithName(name), gorgonia.WithShape(tokens, channels), gorgonia.WithValue(value))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
