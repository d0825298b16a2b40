package main

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/graph"
)

// temperature sharpens the distribution that a sample is drawn from.
const temperature = 0.8

// sample continues prompt by count symbols, drawn from a model with the given
// weights. Options are those of the machine.
func sample(ctx context.Context, cfg modelConfig, weights graph.State, prompt []int, count int, seed uint64, options ...G.VMOpt) ([]int, error) {
	m, err := newModel(cfg, 1)
	if err != nil {
		return nil, err
	}
	if err := graph.LoadWeights(m.params, weights); err != nil {
		return nil, err
	}
	var logits G.Value
	G.Read(m.logits, &logits)
	machine := G.NewTapeMachine(m.g, options...)
	defer machine.Close()
	r := rand.New(rand.NewPCG(seed, 2))
	text := append([]int(nil), prompt...)
	for range count {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		window := make([]int, cfg.Context+1) // what follows the text in it cannot be seen from the text
		seen := copy(window, text[max(0, len(text)-cfg.Context):])
		input, target := m.encode([][]int{window})
		if err := G.Let(m.input, input); err != nil {
			return nil, err
		}
		if err := G.Let(m.target, target); err != nil {
			return nil, err
		}
		if err := machine.RunAll(); err != nil {
			return nil, err
		}
		dense, ok := logits.(*tensor.Dense)
		if !ok {
			return nil, fmt.Errorf("the logits are a %T", logits)
		}
		row := dense.Float32s()[(seen-1)*cfg.Alphabet : seen*cfg.Alphabet]
		text = append(text, draw(row, r.Float64()))
		machine.Reset()
	}
	return text, nil
}

// draw is the symbol at quantile u, in [0, 1), of softmax(logits / temperature).
func draw(logits []float32, u float64) int {
	top := math.Inf(-1)
	for _, l := range logits {
		top = max(top, float64(l))
	}
	p, sum := make([]float64, len(logits)), 0.0
	for i, l := range logits {
		p[i] = math.Exp((float64(l) - top) / temperature)
		sum += p[i]
	}
	u *= sum
	for i, v := range p {
		if u < v {
			return i
		}
		u -= v
	}
	return len(p) - 1
}
