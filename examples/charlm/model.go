package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/graph"
	"github.com/mhc-go/mhc/op"
)

// modelConfig sizes the language model.
type modelConfig struct {
	Alphabet int    // V, symbols
	Context  int    // T, symbols that a prediction may look at
	Channels int    // C
	Heads    int    // attention heads; divides Channels
	Blocks   int    // pairs of attention and MLP
	Residual string // mhc, hc or plain
	Streams  int    // n, for mhc and hc
	Preset   mhc.Preset
	Seed     uint64
}

// rmsEps keeps the normalisation before each projection finite.
const rmsEps = 1e-6

// model is the graph of the language model over a batch of windows.
type model struct {
	cfg    modelConfig
	batch  int
	g      *G.ExprGraph
	input  *G.Node // [batch*T, V+T]: a one for the symbol and a one for its place
	target *G.Node // [batch*T, V]: a one for the next symbol
	logits *G.Node // [batch*T, V]
	loss   *G.Node // mean cross entropy in nats
	stream residual
	params G.Nodes
	rng    *rand.PCG
	rand   *rand.Rand       // draws from rng
	mask   *G.Node          // [batch*heads, T, T]
	gain   *graph.GainWatch // nil for a plain residual
}

func newModel(cfg modelConfig, batch int) (*model, error) {
	if cfg.Channels%cfg.Heads != 0 {
		return nil, fmt.Errorf("%d channels do not split into %d heads", cfg.Channels, cfg.Heads)
	}
	m := &model{cfg: cfg, batch: batch, g: G.NewGraph(), rng: rand.NewPCG(cfg.Seed, 1)}
	m.rand = rand.New(m.rng)
	tokens, v, t, c := batch*cfg.Context, cfg.Alphabet, cfg.Context, cfg.Channels
	m.input = G.NewMatrix(m.g, tensor.Float32, G.WithShape(tokens, v+t), G.WithName("input"))
	m.target = G.NewMatrix(m.g, tensor.Float32, G.WithShape(tokens, v), G.WithName("target"))
	m.mask = G.NewTensor(m.g, tensor.Float32, 3, G.WithName("causal"), G.WithShape(batch*cfg.Heads, t, t), G.WithValue(causalMask(batch*cfg.Heads, t)))

	var err error
	if m.stream, err = newResidual(m); err != nil {
		return nil, err
	}
	x, err := G.Mul(m.input, m.param("embed", 1, v+t, c))
	if err != nil {
		return nil, err
	}
	if x, err = m.stream.in(x); err != nil {
		return nil, err
	}
	for i := range cfg.Blocks {
		if x, err = m.stream.layer(2*i, x, m.attention(fmt.Sprintf("blocks.%d.attention", i))); err != nil {
			return nil, err
		}
		if x, err = m.stream.layer(2*i+1, x, m.mlp(fmt.Sprintf("blocks.%d.mlp", i))); err != nil {
			return nil, err
		}
	}
	if m.gain, err = m.stream.watchGain(); err != nil {
		return nil, err
	}
	if x, err = m.stream.out(x); err != nil {
		return nil, err
	}
	if m.logits, err = m.project(x, "unembed", v); err != nil {
		return nil, err
	}
	m.params = append(m.params, m.stream.learnables()...)
	m.loss, err = crossEntropy(m.logits, m.target)
	return m, err
}

// param makes a weight drawn from a normal distribution of the given deviation.
func (m *model) param(name string, deviation float64, shape ...int) *G.Node {
	return m.filled(name, func(int) float32 { return float32(m.rand.NormFloat64() * deviation) }, shape...)
}

// filled makes a weight whose number i, in row-major order, is value(i).
func (m *model) filled(name string, value func(i int) float32, shape ...int) *G.Node {
	data := make([]float32, tensor.Shape(shape).TotalSize())
	for i := range data {
		data[i] = value(i)
	}
	n := G.NewTensor(m.g, tensor.Float32, len(shape), G.WithName(name), G.WithShape(shape...),
		G.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))))
	m.params = append(m.params, n)
	return n
}

// project normalises h [N, C] by its root mean square and multiplies it by a
// weight [C, width], in one pass.
func (m *model) project(h *G.Node, name string, width int) (*G.Node, error) {
	c := h.Shape()[1]
	w := m.param(name, 1/math.Sqrt(float64(c)), c, width)
	return op.MatMulRMS(h, w, op.MatMulRMSConfig{RMSEps: rmsEps})
}

// attention is causal self-attention of several heads over [batch*T, C].
func (m *model) attention(name string) block {
	return func(h *G.Node) (*G.Node, error) {
		b, t, heads, c := m.batch, m.cfg.Context, m.cfg.Heads, m.cfg.Channels
		wide := c / heads
		var qkv [3]*G.Node
		for i, which := range []string{"query", "key", "value"} {
			p, err := m.project(h, name+"."+which, c)
			if err != nil {
				return nil, err
			}
			split := chain{p, nil}
			split.reshape(b, t, heads, wide)
			split.then(func(n *G.Node) (*G.Node, error) { return G.Transpose(n, 0, 2, 1, 3) })
			split.reshape(b*heads, t, wide)
			if split.err != nil {
				return nil, split.err
			}
			qkv[i] = split.node
		}
		scores, err := G.BatchedMatMul(qkv[0], qkv[1], false, true)
		s := chain{scores, err}
		s.then(func(n *G.Node) (*G.Node, error) {
			return G.Mul(n, G.NewConstant(float32(1/math.Sqrt(float64(wide)))))
		})
		s.then(func(n *G.Node) (*G.Node, error) { return G.Add(n, m.mask) })
		s.reshape(b*heads*t, t)
		s.then(func(n *G.Node) (*G.Node, error) { return G.SoftMax(n, 1) })
		s.reshape(b*heads, t, t)
		s.then(func(n *G.Node) (*G.Node, error) { return G.BatchedMatMul(n, qkv[2]) })
		s.reshape(b, heads, t, wide)
		s.then(func(n *G.Node) (*G.Node, error) { return G.Transpose(n, 0, 2, 1, 3) })
		s.reshape(b*t, c)
		s.then(func(n *G.Node) (*G.Node, error) {
			return G.Mul(n, m.param(name+".out", m.outDeviation(c), c, c))
		})
		return s.node, s.err
	}
}

// mlp is two projections around x * sigmoid(x), four times as wide inside.
func (m *model) mlp(name string) block {
	return func(h *G.Node) (*G.Node, error) {
		c := m.cfg.Channels
		up, err := m.project(h, name+".up", 4*c)
		s := chain{up, err}
		s.then(G.Sigmoid)
		s.then(func(n *G.Node) (*G.Node, error) { return G.HadamardProd(n, up) })
		s.then(func(n *G.Node) (*G.Node, error) {
			return G.Mul(n, m.param(name+".down", m.outDeviation(4*c), 4*c, c))
		})
		return s.node, s.err
	}
}

// outDeviation makes the sum of all blocks' outputs start at about the size of
// the embedding.
func (m *model) outDeviation(rows int) float64 {
	return 1 / math.Sqrt(float64(rows)*2*float64(m.cfg.Blocks))
}

// crossEntropy is the mean over rows of -log softmax(logits)[target].
func crossEntropy(logits, target *G.Node) (*G.Node, error) {
	rows := float32(logits.Shape()[0])
	logp, err := G.LogSoftMax(logits, 1)
	s := chain{logp, err}
	s.then(func(n *G.Node) (*G.Node, error) { return G.HadamardProd(n, target) })
	s.then(func(n *G.Node) (*G.Node, error) { return G.Sum(n) })
	s.then(func(n *G.Node) (*G.Node, error) { return G.Mul(n, G.NewConstant(-1/rows)) })
	return s.node, s.err
}

// chain strings ops together and keeps the first error.
type chain struct {
	node *G.Node
	err  error
}

func (s *chain) then(f func(*G.Node) (*G.Node, error)) {
	if s.err == nil {
		s.node, s.err = f(s.node)
	}
}

func (s *chain) reshape(shape ...int) {
	s.then(func(n *G.Node) (*G.Node, error) { return G.Reshape(n, shape) })
}

// causalMask is 0 where a symbol may look and far below 0 where it may not.
func causalMask(count, t int) *tensor.Dense {
	data := make([]float32, count*t*t)
	for i := range data {
		if to, from := i%t, i/t%t; to > from {
			data[i] = -1e9
		}
	}
	return tensor.New(tensor.WithShape(count, t, t), tensor.WithBacking(data))
}

// encode writes windows of T+1 symbols as the values of input and target.
func (m *model) encode(windows [][]int) (input, target *tensor.Dense) {
	v, t := m.cfg.Alphabet, m.cfg.Context
	in, out := make([]float32, m.batch*t*(v+t)), make([]float32, m.batch*t*v)
	for i, w := range windows {
		for j, s := range w[:t] {
			row := i*t + j
			in[row*(v+t)+s], in[row*(v+t)+v+j] = 1, 1
			out[row*v+w[j+1]] = 1
		}
	}
	return tensor.New(tensor.WithShape(m.batch*t, v+t), tensor.WithBacking(in)),
		tensor.New(tensor.WithShape(m.batch*t, v), tensor.WithBacking(out))
}
