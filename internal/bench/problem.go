package bench

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/graph"
	"github.com/mhc-go/mhc/op"
)

// Problem is the size of one measurement.
type Problem struct {
	Config   mhc.Config   // n, T and the convention
	Channels int          // C
	Tokens   int          // N
	Dtype    tensor.Dtype // of the streams
	// WidePhi says that phi is in the dtype of the arithmetic, as in the weights of
	// DeepSeek V4, and not in that of the streams.
	WidePhi bool
	Seed    uint64
}

func (p Problem) check() error {
	if err := p.Config.Validate(); err != nil {
		return err
	}
	if !slices.Contains([]tensor.Dtype{tensor.Float32, tensor.Float64, op.BFloat16, op.Float16}, p.Dtype) {
		return fmt.Errorf("dtype is %v, want float32, float64, BFloat16 or Float16", p.Dtype)
	}
	if p.Channels < 1 || p.Tokens < 1 {
		return fmt.Errorf("channels C is %d and tokens N %d, want 1 or more", p.Channels, p.Tokens)
	}
	return nil
}

// arithmetic is the dtype of coefficients and parameters.
func (p Problem) arithmetic() tensor.Dtype {
	if p.Dtype == tensor.Float64 {
		return p.Dtype
	}
	return tensor.Float32
}

// phiDtype is the dtype of phi.
func (p Problem) phiDtype() tensor.Dtype {
	if p.WidePhi {
		return p.arithmetic()
	}
	return p.Dtype
}

// builder collects a graph under test. Both sides of a comparison ask it for the
// same inputs by name and so get the same numbers.
type builder struct {
	Problem
	graph   *gorgonia.ExprGraph
	inputs  gorgonia.Nodes
	outputs gorgonia.Nodes
}

// streams adds an input in the streams' dtype.
func (b *builder) streams(name string, shape ...int) *gorgonia.Node {
	return b.input(name, b.Dtype, 1, shape)
}

// phi adds a projection with m columns.
func (b *builder) phi(m int) *gorgonia.Node {
	k := b.Config.Streams * b.Channels
	shape := []int{k, m}
	if b.Config.Phi == mhc.PhiMK {
		shape = []int{m, k}
	}
	return b.input("phi", b.phiDtype(), 0.02, shape)
}

// coefficient adds an input in the dtype of the arithmetic.
func (b *builder) coefficient(name string, scale float64, shape ...int) *gorgonia.Node {
	return b.input(name, b.arithmetic(), scale, shape)
}

func (b *builder) input(name string, dt tensor.Dtype, scale float64, shape []int) *gorgonia.Node {
	n := b.constant(name, random(name, b.Seed, dt, scale, shape))
	b.inputs = append(b.inputs, n)
	return n
}

// constant adds an input that is not differentiated by.
func (b *builder) constant(name string, t *tensor.Dense) *gorgonia.Node {
	return gorgonia.NewTensor(b.graph, t.Dtype(), t.Dims(), gorgonia.WithName(name), gorgonia.WithShape(t.Shape()...), gorgonia.WithValue(t))
}

// loss gives every output an upstream gradient of standard normal numbers.
func (b *builder) loss() (*gorgonia.Node, error) {
	u := upstream{dtype: b.arithmetic()}
	var ups gorgonia.Nodes
	for i, out := range b.outputs {
		name := fmt.Sprintf("upstream%d", i)
		t := random(name, b.Seed, out.Dtype(), 1, out.Shape())
		u.operands = append(u.operands, t)
		ups = append(ups, b.constant(name, t))
	}
	return gorgonia.ApplyOp(u, append(append(gorgonia.Nodes{}, b.outputs...), ups...)...)
}

// period is where the numbers of a large tensor begin again: an odd count, so
// that no two tokens are equal.
const period = 1<<22 - 1

// random is a tensor of scale times standard normal numbers, drawn by name.
func random(name string, seed uint64, dt tensor.Dtype, scale float64, shape tensor.Shape) *tensor.Dense {
	for _, c := range []byte(name) {
		seed = seed*131 + uint64(c)
	}
	rng := rand.New(rand.NewPCG(seed, uint64(len(name))))
	v := make([]float64, shape.TotalSize())
	for i := range min(len(v), period) {
		v[i] = scale * rng.NormFloat64()
	}
	for i := period; i < len(v); i++ {
		v[i] = v[i-period]
	}
	return inDtype(dt, v, shape)
}

// inDtype is a tensor of numbers, rounded to a dtype that Problem.check has let
// through.
func inDtype(dt tensor.Dtype, v []float64, shape tensor.Shape) *tensor.Dense {
	t, err := graph.Convert(tensor.New(tensor.WithShape(shape.Clone()...), tensor.WithBacking(v)), dt)
	if err != nil {
		panic(err)
	}
	return t
}

// bytes are the sizes of nodes' tensors, together.
func bytes(nodes gorgonia.Nodes) (total int64) {
	for _, n := range nodes {
		total += int64(n.Shape().TotalSize()) * int64(n.Dtype().Size())
	}
	return total
}
