package graph_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/graph"
)

const tokens, channels, steps = 16, 8, 200

// A model of two mHC layers learns to shift a signal by one place. It is stopped
// halfway and resumes from its checkpoint.
func Example() {
	if err := train(); err != nil {
		fmt.Println(err)
	}
	// Output:
	// loss 3.2 before, 0.2 after 200 steps
	// gain 1.03 forward, 1.00 backward
}

func train() error {
	g := gorgonia.NewGraph()
	x := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(tokens, channels), gorgonia.WithName("x"))
	y := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(tokens, channels), gorgonia.WithName("y"))

	// Two layers of four streams, each around tanh(h w).
	seed := rand.NewPCG(1, 2)
	stack, err := graph.NewStack(g, "blocks", 2, graph.Config{MHC: mhc.Liger.Config(4), Channels: channels, Rand: seed})
	if err != nil {
		return err
	}
	params := stack.Learnables()
	h, err := stack.In(x)
	if err != nil {
		return err
	}
	for i, layer := range stack.Layers() {
		w := gorgonia.NewMatrix(g, tensor.Float32, gorgonia.WithShape(channels, channels),
			gorgonia.WithName(fmt.Sprintf("w.%d", i)), gorgonia.WithValue(normal(seed, 0.3, channels, channels)))
		params = append(params, w)
		h, err = layer.Apply(h, func(h *gorgonia.Node) (*gorgonia.Node, error) {
			return gorgonia.Tanh(gorgonia.Must(gorgonia.Mul(h, w)))
		})
		if err != nil {
			return err
		}
	}
	if h, err = stack.Out(h); err != nil {
		return err
	}
	loss := gorgonia.Must(gorgonia.Mean(gorgonia.Must(gorgonia.Square(gorgonia.Must(gorgonia.Sub(h, y))))))
	gain, err := stack.WatchGain()
	if err != nil {
		return err
	}

	dir, err := os.MkdirTemp("", "mhc")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	checkpoint := filepath.Join(dir, "checkpoint.safetensors")
	trainer, err := graph.NewTrainer(loss, params,
		graph.WithSolver(graph.NewAdamW(0.02)),
		graph.WithSchedule(graph.Cosine(0.02, 0.001, 10, steps)),
		graph.WithClipNorm(1),
		graph.WithCheckpoint(checkpoint, 50),
	)
	if err != nil {
		return err
	}
	defer trainer.Close()
	ctx := context.Background()
	before, err := trainer.Evaluate(ctx, 4, batches)
	if err != nil {
		return err
	}
	if err := trainer.Run(ctx, steps/2, batches); err != nil {
		return err
	}
	if err := trainer.Resume(checkpoint); err != nil {
		return err
	}
	if err := trainer.Run(ctx, steps, batches); err != nil {
		return err
	}
	after, err := trainer.Evaluate(ctx, 4, batches)
	if err != nil {
		return err
	}
	_, total, err := gain.Gain()
	if err != nil {
		return err
	}
	fmt.Printf("loss %.1f before, %.1f after %d steps\n", before, after, trainer.Step())
	fmt.Printf("gain %.2f forward, %.2f backward\n", total.Forward, total.Backward)
	return nil
}

// batches depends on the step alone, so a resumed run sees what it would have
// seen.
func batches(step int) (graph.Batch, error) {
	in := normal(rand.NewPCG(3, uint64(step)), 1, tokens, channels)
	out := in.Clone().(*tensor.Dense)
	for i := range out.Float32s() {
		row, column := i/channels, i%channels
		out.Float32s()[i] = in.Float32s()[row*channels+(column+1)%channels]
	}
	return graph.Batch{Inputs: map[string]gorgonia.Value{"x": in, "y": out}, Tokens: tokens}, nil
}

// normal draws a tensor from a normal distribution.
func normal(source rand.Source, deviation float64, shape ...int) *tensor.Dense {
	t := tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(shape...))
	r := rand.New(source)
	for i := range t.Float32s() {
		t.Float32s()[i] = float32(deviation * r.NormFloat64())
	}
	return t
}
