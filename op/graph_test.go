package op_test

import (
	"fmt"
	"io"
	"log"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/op"
	"github.com/mhc-go/mhc/tests/gradcheck"
)

// layer is x -> PostRes(x, f(Pre(x, h_pre)), h_post, h_res) with in = phi, b,
// alpha.
func layer(x *gorgonia.Node, in gorgonia.Nodes, cfg mhc.Config, f func(*gorgonia.Node) (*gorgonia.Node, error)) (*gorgonia.Node, error) {
	c, err := op.Coeffs(x, in[0], in[1], in[2], cfg)
	if err != nil {
		return nil, err
	}
	h, err := allUsed.nodes(c)
	if err != nil {
		return nil, err
	}
	read, err := op.Pre(x, h[0])
	if err != nil {
		return nil, err
	}
	y, err := f(read)
	if err != nil {
		return nil, err
	}
	return op.PostRes(x, y, h[1], h[2], cfg.Apply)
}

// network is a stack of layers of tanh(x w), between Streams and Head.
type network struct {
	cfg                      mhc.Config
	tokens, channels, layers int
	storage                  tensor.Dtype // of the streams and phi
}

func smallNetwork(storage tensor.Dtype) network {
	cfg := mhc.Liger.Config(3)
	cfg.Sinkhorn.Iterations = 3
	return network{cfg: cfg, tokens: 4, channels: 5, layers: 3, storage: storage}
}

func (n network) operands() []operand {
	rng := randoms(5)
	a := tensor.Float32
	if n.storage == tensor.Float64 {
		a = n.storage
	}
	k, m := n.cfg.Streams*n.channels, n.cfg.Width()
	in := []operand{random(rng, "x", a, n.tokens, n.channels)}
	for l := range n.layers {
		in = append(in,
			random(rng, fmt.Sprintf("phi%d", l), n.storage, k, m),
			random(rng, fmt.Sprintf("b%d", l), a, m),
			random(rng, fmt.Sprintf("alpha%d", l), a, 3),
			random(rng, fmt.Sprintf("w%d", l), a, n.channels, n.channels))
	}
	return append(in,
		random(rng, "headphi", n.storage, k, n.cfg.Streams),
		random(rng, "headb", a, n.cfg.Streams),
		random(rng, "headalpha", a, 1))
}

func (n network) build(in gorgonia.Nodes) (gorgonia.Nodes, error) {
	a := in[0].Dtype()
	first, err := op.Cast(in[0], n.storage)
	if err != nil {
		return nil, err
	}
	x, err := op.Streams(first, n.cfg.Streams)
	if err != nil {
		return nil, err
	}
	in = in[1:]
	for range n.layers {
		x, err = layer(x, in[:3], n.cfg, func(h *gorgonia.Node) (*gorgonia.Node, error) {
			h, err := op.Cast(h, a)
			if err != nil {
				return nil, err
			}
			if h, err = gorgonia.Mul(h, in[3]); err != nil {
				return nil, err
			}
			if h, err = gorgonia.Tanh(h); err != nil {
				return nil, err
			}
			return op.Cast(h, n.storage)
		})
		if err != nil {
			return nil, err
		}
		in = in[4:]
	}
	return one(op.Head(x, in[0], in[1], in[2], n.cfg.Head()))
}

func TestChainOfLayers(t *testing.T) {
	n := smallNetwork(tensor.Float64)
	checkGradients(t, n.build, n.operands())
}

// Built-in operators before and after an op, with gradients through both.
func TestBetweenBuiltIns(t *testing.T) {
	const n, channels = 3, 4
	cfg := mhc.Liger.Config(n)
	cfg.Sinkhorn.Iterations = 3
	m := cfg.Width()
	rng := randoms(6)
	number := func(name string, shape ...int) operand { return random(rng, name, tensor.Float64, shape...) }
	params := []operand{number("phi", n*channels, m), number("b", m), number("alpha", 3)}
	coeffs := func(x *gorgonia.Node, in gorgonia.Nodes, u use) (gorgonia.Nodes, error) {
		c, err := op.Coeffs(x, in[0], in[1], in[2], cfg)
		if err != nil {
			return nil, err
		}
		return u.nodes(c)
	}
	unary := func(f func(*gorgonia.Node) (*gorgonia.Node, error)) func(x *gorgonia.Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
		return func(x *gorgonia.Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
			x, err := f(x)
			if err != nil {
				return nil, err
			}
			out, err := coeffs(x, in, allUsed)
			for i := range out {
				if err == nil {
					out[i], err = f(out[i])
				}
			}
			return out, err
		}
	}
	for _, c := range []struct {
		name     string
		x        operand
		build    func(x *gorgonia.Node, in gorgonia.Nodes) (gorgonia.Nodes, error)
		machines []gradcheck.Machine
	}{
		{name: "Square", x: number("x", 2, n, channels), build: unary(gorgonia.Square)},
		{name: "Neg", x: number("x", 2, n, channels), build: unary(gorgonia.Neg)},
		{name: "Add and HadamardProd of outputs", x: number("x", 2, n, channels), build: func(x *gorgonia.Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
			h, err := coeffs(x, in, use{pre: true, post: true})
			if err != nil {
				return nil, err
			}
			s, err := gorgonia.Add(h[0], h[1])
			if err != nil {
				return nil, err
			}
			p, err := gorgonia.HadamardProd(h[0], h[1])
			return gorgonia.Nodes{s, p}, err
		}},
		{name: "Mul of h_pre by a matrix, and of an input", x: number("x", 2, channels), build: func(x *gorgonia.Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
			y, err := gorgonia.Mul(x, in[3])
			if err != nil {
				return nil, err
			}
			if y, err = op.Streams(y, n); err != nil {
				return nil, err
			}
			h, err := coeffs(y, in, use{pre: true})
			if err != nil {
				return nil, err
			}
			return one(gorgonia.Mul(h[0], in[4]))
		}},
		{name: "Slice", x: number("x", 4, n, channels), build: func(x *gorgonia.Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
			x, err := gorgonia.Slice(x, gorgonia.S(1, 3))
			if err != nil {
				return nil, err
			}
			h, err := coeffs(x, in, use{res: true})
			if err != nil {
				return nil, err
			}
			return one(gorgonia.Slice(h[0], nil, gorgonia.S(0, 2)))
		}},
		// LispMachine computes wrong gradients through the built-in Reshape.
		{name: "Reshape", x: number("x", 2, n*channels), machines: []gradcheck.Machine{gradcheck.Tape}, build: func(x *gorgonia.Node, in gorgonia.Nodes) (gorgonia.Nodes, error) {
			x, err := gorgonia.Reshape(x, tensor.Shape{2, n, channels})
			if err != nil {
				return nil, err
			}
			h, err := coeffs(x, in, use{res: true})
			if err != nil {
				return nil, err
			}
			return one(gorgonia.Reshape(h[0], tensor.Shape{2, n * n}))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := append([]operand{c.x}, params...)
			if c.x.shape[len(c.x.shape)-1] == channels && len(c.x.shape) == 2 {
				in = append(in, number("w", channels, channels), number("v", n, 2))
			}
			checkGradients(t, func(in gorgonia.Nodes) (gorgonia.Nodes, error) { return c.build(in[0], in[1:]) }, in, c.machines...)
		})
	}
}

// Tanh before and after every op: built-in operators write into operands that
// nothing reads any more, and must not take those of a backward for such.
func TestTanhAround(t *testing.T) {
	tanh := func(nodes gorgonia.Nodes) (out gorgonia.Nodes, err error) {
		for _, n := range nodes {
			if n.Shape().TotalSize() > 1 { // LispMachine fails on the built-in Tanh of one number
				if n, err = gorgonia.Tanh(n); err != nil {
					return nil, err
				}
			}
			out = append(out, n)
		}
		return out, nil
	}
	for _, c := range float64Cases(sizes{[]int{2}, 3, 4}, mhc.Liger) {
		t.Run(c.name, func(t *testing.T) {
			checkGradients(t, func(in gorgonia.Nodes) (gorgonia.Nodes, error) {
				in, err := tanh(in)
				if err != nil {
					return nil, err
				}
				out, err := c.build(in)
				if err != nil {
					return nil, err
				}
				return tanh(out)
			}, c.in)
		})
	}
}

// An output that is used twice gets the sum of both gradients; the op that is
// applied twice to the same nodes is one node.
func TestSharedOutputs(t *testing.T) {
	cs := float64Cases(sizes{[]int{2}, 3, 4}, mhc.Liger)
	for _, c := range cs {
		t.Run("used twice/"+c.name, func(t *testing.T) {
			checkGradients(t, func(in gorgonia.Nodes) (gorgonia.Nodes, error) {
				out, err := c.build(in)
				if err != nil {
					return nil, err
				}
				twice, err := gorgonia.Square(out[0])
				return append(out, twice), err
			}, c.in)
		})
		t.Run("merged/"+c.name, func(t *testing.T) {
			checkGradients(t, func(in gorgonia.Nodes) (gorgonia.Nodes, error) {
				a, err := c.build(in)
				if err != nil {
					return nil, err
				}
				b, err := c.build(in)
				for i := range a {
					assert.Same(t, a[i], b[i])
				}
				return append(a, b...), err
			}, c.in)
		})
	}
}

// Ops that differ in nothing but a setting stay apart.
func TestSettingsKeepNodesApart(t *testing.T) {
	g := gorgonia.NewGraph()
	const n, channels = 2, 3
	node := func(name string, shape ...int) *gorgonia.Node {
		return gorgonia.NewTensor(g, tensor.Float64, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name))
	}
	x, logits := node("x", 4, n, channels), node("logits", 4, n, n)
	f, hpost, hres := node("f", 4, channels), node("hpost", 4, n), node("hres", 4, n, n)
	phi, b, alpha := node("phi", n*channels, 8), node("b", 8), node("alpha", 3)
	headPhi, headB, headAlpha := node("headphi", n*channels, n), node("headb", n), node("headalpha", 1)
	square, matrix := node("square", 5, 6), node("matrix", 6, 6) // phi that is K, M and M, K
	base := mhc.Liger.Config(n)
	seen := map[*gorgonia.Node]string{}
	add := func(name string, node *gorgonia.Node, err error) {
		require.NoError(t, err)
		require.NotContains(t, seen, node, "%s is the node of %s", name, seen[node])
		seen[node] = name
	}
	for i, change := range []func(*mhc.Config){
		func(*mhc.Config) {},
		func(c *mhc.Config) { c.RMSEps = 1e-5 },
		func(c *mhc.Config) { c.PreEps = 1e-6 },
		func(c *mhc.Config) { c.PostMult = 1 },
		func(c *mhc.Config) { c.Sinkhorn.Iterations++ },
		func(c *mhc.Config) { c.Sinkhorn.Eps = 1e-5 },
		func(c *mhc.Config) { c.Sinkhorn.Start++ },
		func(c *mhc.Config) { c.Sinkhorn.End++ },
	} {
		cfg := base
		change(&cfg)
		c, err := op.Coeffs(x, phi, b, alpha, cfg)
		require.NoError(t, err)
		pre, err := c.Pre()
		add(fmt.Sprint("Coeffs ", i), pre, err)
		if cfg.Sinkhorn != base.Sinkhorn {
			p, err := op.Sinkhorn(logits, cfg.Sinkhorn)
			add(fmt.Sprint("Sinkhorn ", i), p, err)
		}
		if cfg.Head() != base.Head() {
			h, err := op.Head(x, headPhi, headB, headAlpha, cfg.Head())
			add(fmt.Sprint("Head ", i), h, err)
		}
	}
	for _, l := range []mhc.PhiLayout{mhc.PhiKM, mhc.PhiMK} {
		y, err := op.MatMulRMS(square, matrix, op.MatMulRMSConfig{RMSEps: 1e-6, Phi: l})
		add("MatMulRMS "+l.String(), y, err)
	}
	for _, a := range []mhc.Apply{mhc.ApplyRows, mhc.ApplyTransposed} {
		y, err := op.PostRes(x, f, hpost, hres, a)
		add("PostRes "+a.String(), y, err)
	}
	for _, n := range []int{1, 2} {
		y, err := op.Streams(f, n)
		add(fmt.Sprint("Streams ", n), y, err)
	}
	for _, d := range []tensor.Dtype{tensor.Float32, op.BFloat16, op.Float16} {
		y, err := op.Cast(f, d)
		add("Cast "+d.String(), y, err)
	}
}

// A clone shares the ops of its graph; values and gradients are its own.
func TestClonedGraph(t *testing.T) {
	n := smallNetwork(tensor.Float64)
	eachMachine(t, func(t *testing.T, kind machine.Kind) {
		p := programOf(t, n.build, n.operands())
		clone := cloneProgram(p)
		for i := range p.Inputs { // other numbers in the first graph
			require.NoError(t, p.Inputs[i].Value().(*tensor.Dense).Memset(0.5))
		}
		other := run(t, kind, p)
		got := run(t, kind, clone)
		assertSameResult(t, run(t, kind, programOf(t, n.build, n.operands())), got)
		assert.NotEqual(t, other.Loss.Data(), got.Loss.Data())
	})
	t.Run("with gradients", func(t *testing.T) {
		p := programOf(t, n.build, n.operands())
		grads, err := gorgonia.Grad(p.Loss, p.Inputs...)
		require.NoError(t, err)
		p.Outputs = append(p.Outputs, grads...)
		clone := cloneProgram(p)
		p.Loss, clone.Loss = nil, nil
		p.Inputs, clone.Inputs = nil, nil
		assertSameResult(t, run(t, machine.Tape, p), run(t, machine.Tape, clone))
	})
}

func cloneProgram(p machine.Program) machine.Program {
	g := p.Graph.Clone().(*gorgonia.ExprGraph)
	find := func(n *gorgonia.Node) *gorgonia.Node { return g.Node(n.ID()).(*gorgonia.Node) }
	c := machine.Program{Graph: g, Loss: find(p.Loss)}
	for _, n := range p.Inputs {
		c.Inputs = append(c.Inputs, find(n))
	}
	for _, n := range p.Outputs {
		c.Outputs = append(c.Outputs, find(n))
	}
	return c
}

func assertSameResult(t *testing.T, want, got machine.Result) {
	t.Helper()
	for i := range want.Outputs {
		assert.Equal(t, want.Outputs[i].Data(), got.Outputs[i].Data())
	}
	require.Len(t, got.Gradients, len(want.Gradients))
	for i := range want.Gradients {
		assert.Equal(t, want.Gradients[i].Data(), got.Gradients[i].Data())
	}
}

// Machines of clones run at the same time on ops that they share. The loss has no
// constants: clones share those, too, and every machine writes into their headers.
func TestConcurrentMachines(t *testing.T) {
	n := smallNetwork(tensor.Float64)
	eachMachine(t, func(t *testing.T, kind machine.Kind) {
		p := programWith(t, n.build, n.operands(), func(out gorgonia.Nodes) (*gorgonia.Node, error) {
			square, err := gorgonia.HadamardProd(out[0], out[0])
			if err != nil {
				return nil, err
			}
			return gorgonia.Sum(square)
		})
		clones := make([]machine.Program, 4)
		for i := range clones {
			clones[i] = cloneProgram(p)
		}
		want := run(t, kind, p)
		results := make([]machine.Result, len(clones))
		var wg sync.WaitGroup
		for i, c := range clones {
			m, err := machine.New(kind, c)
			require.NoError(t, err)
			wg.Go(func() {
				for range 3 {
					if results[i], err = m.Run(); err != nil {
						return
					}
				}
			})
			defer func() { assert.NoError(t, err) }()
		}
		wg.Wait()
		for _, r := range results {
			assertSameResult(t, want, r)
		}
	})
}

// What a machine watches, traces or binds does not change what it computes.
func TestMachineOptions(t *testing.T) {
	n := smallNetwork(tensor.Float64)
	quiet := log.New(io.Discard, "", 0)
	for _, kind := range machine.Kinds {
		want := run(t, kind, programOf(t, n.build, n.operands()))
		for name, opts := range map[string][]gorgonia.VMOpt{
			"NaNWatch":       {gorgonia.WithNaNWatch()},
			"InfWatch":       {gorgonia.WithInfWatch()},
			"TraceExec":      {gorgonia.TraceExec()},
			"BindDualValues": {gorgonia.BindDualValues()},
			"Log":            {gorgonia.WithLogger(quiet), gorgonia.WithWatchlist()},
			"all": {gorgonia.WithNaNWatch(), gorgonia.WithInfWatch(), gorgonia.TraceExec(), gorgonia.BindDualValues(),
				gorgonia.WithLogger(quiet), gorgonia.WithWatchlist()},
		} {
			if kind == machine.Lisp && (name == "TraceExec" || name == "BindDualValues" || name == "all") {
				continue // options of TapeMachine
			}
			t.Run(kind.String()+"/"+name, func(t *testing.T) {
				m, err := machine.New(kind, programOf(t, n.build, n.operands()), opts...)
				require.NoError(t, err)
				defer m.Close()
				for range 2 { // tracing copies into what the first run left
					r, err := m.Run()
					require.NoError(t, err)
					assertSameResult(t, want, r)
				}
			})
		}
	}
}

// A stock solver moves every parameter, down the loss.
func TestAdam(t *testing.T) {
	n := smallNetwork(tensor.Float64)
	eachMachine(t, func(t *testing.T, kind machine.Kind) {
		p := programOf(t, n.build, n.operands())
		if kind == machine.Tape {
			_, err := gorgonia.Grad(p.Loss, p.Inputs...)
			require.NoError(t, err)
		}
		solver := gorgonia.NewAdamSolver(gorgonia.WithLearnRate(0.01))
		var losses []float64
		for range 20 {
			var vm gorgonia.VM = gorgonia.NewLispMachine(p.Graph)
			if kind == machine.Tape {
				vm = gorgonia.NewTapeMachine(p.Graph, gorgonia.BindDualValues(p.Inputs...))
			}
			require.NoError(t, vm.RunAll())
			losses = append(losses, p.Loss.Value().Data().(float64))
			require.NoError(t, solver.Step(gorgonia.NodesToValueGrads(p.Inputs)))
			require.NoError(t, vm.Close())
		}
		assert.Less(t, losses[19], losses[0]-0.5)
		for i, o := range n.operands() {
			for j, v := range numbers(t, p.Inputs[i].Value()) {
				assert.NotEqual(t, o.data[j], v, "%s[%d]", o.name, j)
			}
		}
	})
}
