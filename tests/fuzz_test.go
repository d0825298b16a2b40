package tests

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/graph"
	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/sinkhorn"
)

// FuzzLayer builds a stack of one layer of any shape and settings, and runs it
// forward and backward on both machines: what is refused is refused with an
// error, what is not runs without one and gives finite numbers, and nothing
// panics.
func FuzzLayer(f *testing.F) {
	f.Add(int8(4), int8(8), int8(2), int8(3), int8(20), uint8(0), 1e-6, 1e-6, 1e-6, 2.0, 1.0, uint64(1))
	f.Add(int8(1), int8(1), int8(0), int8(1), int8(1), uint8(0x55), 0.0, 0.0, 0.0, -1.0, 1e4, uint64(2))
	f.Add(int8(16), int8(3), int8(1), int8(2), int8(2), uint8(0xff), 1e-20, 0.5, 0.0, 1e-3, 1e-30, uint64(3))
	f.Add(int8(-1), int8(0), int8(1), int8(-2), int8(0), uint8(0x1f), -1.0, math.NaN(), math.Inf(1), math.Inf(-1), math.NaN(), uint64(4))
	f.Add(int8(5), int8(7), int8(3), int8(2), int8(7), uint8(0xa3), 1e300, 1e300, 1e300, 1e300, 1e300, uint64(5))
	f.Fuzz(func(t *testing.T, n, channels, dims, size, iterations int8, choices uint8, rmsEps, preEps, sinkhornEps, postMult, scale float64, seed uint64) {
		bit := func(i int) int { return int(choices) >> i & 1 }
		cfg := graph.Config{
			MHC: mhc.Config{
				Streams: int(n % 18), RMSEps: rmsEps, PreEps: preEps, PostMult: postMult,
				Sinkhorn: sinkhorn.Config{Start: sinkhorn.Start(bit(0) + 2*(bit(1)&bit(2)&bit(3))), End: sinkhorn.Axis(bit(1)), Iterations: int(iterations % 25), Eps: sinkhornEps},
				Apply:    mhc.Apply(bit(2)), Phi: mhc.PhiLayout(bit(3)),
			},
			Channels: int(channels % 20), Dtype: tensor.Float32, Init: graph.Init(bit(4)), Rand: rand.NewPCG(seed, 0),
		}
		if bit(5) == 1 {
			cfg.Dtype = tensor.Float64
		}
		lead := make([]int, dims&3)
		for i := range lead {
			lead[i] = int(size % 4)
		}
		for _, kind := range machine.Kinds {
			values, err := runStack(cfg, lead, scale, kind)
			if invalid := cfg.MHC.Validate(); invalid != nil && err == nil {
				t.Fatalf("settings that are not valid ran: %v", invalid)
			}
			if errors.Is(err, errBuilt) {
				t.Fatalf("%+v, lead %v, %v machine: %v", cfg, lead, kind, err)
			}
			if err != nil || !moderate(cfg.MHC, scale) {
				continue
			}
			for name, v := range values {
				for i, x := range v {
					if math.IsNaN(x) || math.IsInf(x, 0) {
						t.Fatalf("%v, lead %v, scale %v, %v machine: %s[%d] is %v", cfg, lead, scale, kind, name, i, x)
					}
				}
			}
		}
	})
}

var errBuilt = errors.New("a graph that was built does not")

// moderate says that nothing in the settings asks for numbers out of range.
func moderate(cfg mhc.Config, scale float64) bool {
	in := func(v, low, high float64) bool { return v >= low && v <= high }
	return in(math.Abs(scale), 1e-3, 1e4) && in(cfg.RMSEps, 1e-12, 1e3) && in(cfg.PreEps, 0, 1e3) &&
		in(math.Abs(cfg.PostMult), 0, 1e3) && in(cfg.Sinkhorn.Eps, 0, 1)
}

// runStack is In, one layer around tanh, and Out of an input of the given leading
// dimensions and scale, and their gradients by everything. The error wraps
// errBuilt if it is not a refusal to build.
func runStack(cfg graph.Config, lead []int, scale float64, kind machine.Kind) (map[string][]float64, error) {
	g := gorgonia.NewGraph()
	shape := append(append([]int{}, lead...), max(cfg.Channels, 1))
	total := tensor.Shape(shape).TotalSize()
	if slices.Min(shape) < 1 {
		return nil, fmt.Errorf("shape %v cannot be that of a node", shape)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	values := make([]float64, total)
	for i := range values {
		values[i] = scale * rng.NormFloat64()
	}
	in := node(g, "in", cfg.Dtype, values, shape...)
	stack, err := graph.NewStack(g, "s", 1, cfg)
	if err != nil {
		return nil, err
	}
	x, err := stack.In(in)
	if err != nil {
		return nil, err
	}
	f := gorgonia.Tanh
	if total == 1 { // whose gradient Gorgonia's Tanh cannot compute on a LispMachine
		f = func(h *gorgonia.Node) (*gorgonia.Node, error) { return h, nil }
	}
	if x, err = stack.Layers()[0].Apply(x, f); err != nil {
		return nil, err
	}
	if x, err = stack.Out(x); err != nil {
		return nil, err
	}
	p := machine.Program{Graph: g, Outputs: gorgonia.Nodes{x}, Inputs: append(gorgonia.Nodes{in}, stack.Learnables()...)}
	if p.Loss, err = gorgonia.Sum(x); err != nil {
		return nil, err
	}
	vm, err := machine.New(kind, p)
	if err != nil {
		return nil, fmt.Errorf("%w compile: %w", errBuilt, err)
	}
	defer vm.Close()
	r, err := vm.Run()
	if err != nil {
		return nil, fmt.Errorf("%w run: %w", errBuilt, err)
	}
	all := map[string][]float64{"out": wide(r.Outputs[0])}
	for i, n := range p.Inputs {
		all["gradient of "+n.Name()] = wide(r.Gradients[i])
	}
	return all, nil
}
