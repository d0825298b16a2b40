package golden

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"

	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/graph"
	"github.com/mhc-go/mhc/internal/machine"
)

// The bounds of a training run: of the loss of every step, absolute, and of the
// weights after the last.
const (
	lossBound   = 1e-9
	weightBound = 1e-8
)

// model is the language model that a file describes.
type model struct {
	graph        *gorgonia.ExprGraph
	params       gorgonia.Nodes
	logits, loss *gorgonia.Node
}

// training compares the logits and gradients of the first step, and follows the
// whole run.
func training(r *run) error {
	m, err := r.newModel()
	if err != nil {
		return err
	}
	first, err := r.compute(machine.Program{Graph: m.graph, Outputs: gorgonia.Nodes{m.logits}, Loss: m.loss, Inputs: m.params})
	if err != nil {
		return err
	}
	bounds := r.bounds()
	if err := r.compare("logits", first.Outputs[0], bounds.coefficients); err != nil {
		return err
	}
	if err := r.compareParameters("grad.", m.params, first.Gradients, bounds.parameters); err != nil {
		return err
	}

	if m, err = r.newModel(); err != nil {
		return err
	}
	want, err := r.file.wide("loss")
	if err != nil {
		return err
	}
	rate, err := r.file.float("lr")
	if err != nil {
		return err
	}
	follow := m.descend
	if r.machine == machine.Tape {
		follow = m.train
	}
	losses, err := follow(r, gorgonia.NewVanillaSolver(gorgonia.WithLearnRate(rate)), len(want))
	if err != nil {
		return err
	}
	var worst float64
	for i, l := range losses {
		worst = max(worst, math.Abs(l-want[i])) // NaN stays
	}
	r.add("loss", worst, lossBound)
	final := make([]gorgonia.Value, len(m.params))
	for i, p := range m.params {
		final[i] = p.Value()
	}
	return r.compareParameters("final.", m.params, final, weightBound)
}

// train is the run with the package's own trainer.
func (m *model) train(r *run, solver gorgonia.Solver, steps int) (losses []float64, err error) {
	t, err := graph.NewTrainer(m.loss, m.params, graph.WithSolver(solver), graph.WithEngine(r.device.Engine),
		graph.WithCallback(func(step graph.Metrics) error {
			losses = append(losses, step.Loss)
			return nil
		}))
	if err != nil {
		return nil, err
	}
	defer t.Close()
	same := func(int) (graph.Batch, error) { return graph.Batch{}, nil }
	return losses, t.Run(context.Background(), steps, same)
}

// descend is the run with a loop of one's own. Every step has a new graph with
// the same weights: Gorgonia's Reshape leaves one that a LispMachine cannot run
// again.
func (m *model) descend(r *run, solver gorgonia.Solver, steps int) ([]float64, error) {
	losses := make([]float64, steps)
	for i := range losses {
		step, err := r.newModel()
		if err != nil {
			return nil, err
		}
		for j, p := range step.params {
			if err := gorgonia.Let(p, m.params[j].Value()); err != nil {
				return nil, err
			}
		}
		got, err := r.compute(machine.Program{Graph: step.graph, Loss: step.loss, Inputs: step.params})
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
		losses[i] = float64(*got.Loss.(*gorgonia.F64))
		if err := solver.Step(gorgonia.NodesToValueGrads(step.params)); err != nil {
			return nil, fmt.Errorf("step %d: %w", i, err)
		}
	}
	return losses, nil
}

// newModel builds the model with the parameters of the file:
// embedding -> depth x mHC(tanh(x w)) -> head, mean cross entropy.
func (r *run) newModel() (*model, error) {
	n, err := r.file.int("hc")
	if err != nil {
		return nil, err
	}
	cfg := graph.Config{Dtype: tensor.Float64, Rand: rand.NewPCG(0, 0)}
	if cfg.MHC, err = r.file.config(n); err != nil {
		return nil, err
	}
	var depth, vocab int
	for name, to := range map[string]*int{"c": &cfg.Channels, "depth": &depth, "vocab": &vocab} {
		if *to, err = r.file.int(name); err != nil {
			return nil, err
		}
	}

	width := n * cfg.Channels
	m := &model{graph: gorgonia.NewGraph()}
	ids, err := r.oneHot(m.graph, "input_ids", vocab)
	if err != nil {
		return nil, err
	}
	labels, err := r.oneHot(m.graph, "labels", vocab)
	if err != nil {
		return nil, err
	}
	embed, err := r.parameter(m, "embed", vocab, width)
	if err != nil {
		return nil, err
	}
	x, err := gorgonia.Mul(ids, embed)
	if err != nil {
		return nil, err
	}
	tokens := ids.Shape()[0]
	if x, err = gorgonia.Reshape(x, tensor.Shape{tokens, n, cfg.Channels}); err != nil {
		return nil, err
	}
	for i := range depth {
		name := fmt.Sprintf("layers.%d", i)
		layer, err := graph.NewLayer(m.graph, name, cfg)
		if err != nil {
			return nil, err
		}
		if err := r.fill(layer.Learnables()); err != nil {
			return nil, err
		}
		w, err := r.parameter(m, name+".w", cfg.Channels, cfg.Channels)
		if err != nil {
			return nil, err
		}
		x, err = layer.Apply(x, func(h *gorgonia.Node) (*gorgonia.Node, error) {
			if h, err = gorgonia.Mul(h, w); err != nil {
				return nil, err
			}
			return gorgonia.Tanh(h)
		})
		if err != nil {
			return nil, err
		}
		m.params = append(m.params, layer.Learnables()...)
	}
	if x, err = gorgonia.Reshape(x, tensor.Shape{tokens, width}); err != nil {
		return nil, err
	}
	head, err := r.parameter(m, "head", width, vocab)
	if err != nil {
		return nil, err
	}
	if m.logits, err = gorgonia.Mul(x, head); err != nil {
		return nil, err
	}
	m.loss, err = crossEntropy(m.logits, labels)
	return m, err
}

// crossEntropy is the mean over the rows of log(sum(exp(logits))) minus the
// logit of the label, which labels [N, V] has a 1 for.
func crossEntropy(logits, labels *gorgonia.Node) (*gorgonia.Node, error) {
	picked, err := gorgonia.HadamardProd(logits, labels)
	if err != nil {
		return nil, err
	}
	if picked, err = gorgonia.Sum(picked); err != nil {
		return nil, err
	}
	lse, err := gorgonia.Exp(logits)
	if err != nil {
		return nil, err
	}
	if lse, err = gorgonia.Sum(lse, 1); err != nil {
		return nil, err
	}
	if lse, err = gorgonia.Log(lse); err != nil {
		return nil, err
	}
	if lse, err = gorgonia.Sum(lse); err != nil {
		return nil, err
	}
	total, err := gorgonia.Sub(lse, picked)
	if err != nil {
		return nil, err
	}
	return gorgonia.Div(total, gorgonia.NewConstant(float64(logits.Shape()[0])))
}

// oneHot is an input [N, vocab] with a 1 for every id of the named tensor.
func (r *run) oneHot(g *gorgonia.ExprGraph, name string, vocab int) (*gorgonia.Node, error) {
	t, err := r.file.tensor(name)
	if err != nil {
		return nil, err
	}
	ids, ok := t.Data().([]int64)
	if !ok {
		return nil, fmt.Errorf("tensor %s is %v, want int64", name, t.Dtype())
	}
	hot := make([]float64, len(ids)*vocab)
	for i, id := range ids {
		if id < 0 || id >= int64(vocab) {
			return nil, fmt.Errorf("tensor %s holds %d, want 0 to %d", name, id, vocab-1)
		}
		hot[i*vocab+int(id)] = 1
	}
	return r.node(g, name, hot, len(ids), vocab)
}

// parameter adds a parameter of the file to the model.
func (r *run) parameter(m *model, name string, shape ...int) (*gorgonia.Node, error) {
	v, err := r.initial(name)
	if err != nil {
		return nil, err
	}
	if got := r.file.tensors["param."+name].Shape(); !got.Eq(tensor.Shape(shape)) {
		return nil, fmt.Errorf("tensor param.%s has shape %v, want %v", name, got, tensor.Shape(shape))
	}
	n, err := r.node(m.graph, name, v, shape...)
	m.params = append(m.params, n)
	return n, err
}

// fill gives a layer's parameters the values of the file.
func (r *run) fill(params gorgonia.Nodes) error {
	for _, p := range params {
		v, err := r.initial(p.Name())
		if err != nil {
			return err
		}
		if err := gorgonia.Let(p, tensor.New(tensor.WithShape(p.Shape()...), tensor.WithBacking(v))); err != nil {
			return fmt.Errorf("%s: %w", p.Name(), err)
		}
	}
	return nil
}

// initial are the numbers of a parameter at the start.
func (r *run) initial(name string) (all []float64, err error) {
	for _, part := range parts(name) {
		v, err := r.file.wide("param." + part)
		if err != nil {
			return nil, err
		}
		all = append(all, v...)
	}
	return all, nil
}

// compareParameters compares a tensor a parameter with the file's of that prefix.
func (r *run) compareParameters(prefix string, params gorgonia.Nodes, got []gorgonia.Value, bound float64) error {
	for i, p := range params {
		all, err := numbers(prefix+p.Name(), got[i])
		if err != nil {
			return err
		}
		for _, part := range parts(p.Name()) {
			want, err := r.file.wide(prefix + part)
			if err != nil {
				return err
			}
			if len(all) < len(want) {
				return fmt.Errorf("%s has %d numbers fewer than the reference", part, len(want)-len(all))
			}
			if err := r.compareNumbers(prefix+part, all[:len(want)], want, bound); err != nil {
				return err
			}
			all = all[len(want):]
		}
	}
	return nil
}

// parts are the tensors of the file that a parameter stands for: alpha is three.
func parts(name string) []string {
	if !strings.HasSuffix(name, ".alpha") {
		return []string{name}
	}
	var all []string
	for _, o := range outputs {
		all = append(all, name+"_"+o)
	}
	return all
}
