package golden

import (
	"fmt"
	"strings"

	"gorgonia.org/gorgonia"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/op"
)

var outputs = []string{"pre", "post", "res"}

// config is the file's settings; what it does not name is Liger's.
func (f *file) config(streams int) (mhc.Config, error) {
	cfg := mhc.Liger.Config(streams)
	var err error
	for name, to := range map[string]*float64{
		"rms_eps": &cfg.RMSEps, "pre_eps": &cfg.PreEps, "sinkhorn_eps": &cfg.Sinkhorn.Eps, "post_mult": &cfg.PostMult,
	} {
		if *to, err = f.float(name); err != nil {
			return cfg, err
		}
	}
	cfg.Sinkhorn.Iterations, err = f.int("tmax")
	return cfg, err
}

// coeffsGraph is the coefficients of one file in a graph of their own.
type coeffsGraph struct {
	graph  *gorgonia.ExprGraph
	inputs gorgonia.Nodes // x, phi, b, alpha
	coeffs *op.Coefficients
	cfg    mhc.Config
}

func (r *run) newCoeffs() (*coeffsGraph, error) {
	c := &coeffsGraph{graph: gorgonia.NewGraph()}
	x, err := r.storage(c.graph, "x")
	if err != nil {
		return nil, err
	}
	if x.Dims() < 2 {
		return nil, fmt.Errorf("x has shape %v, want [..., n, C]", x.Shape())
	}
	phi, err := r.storage(c.graph, "phi")
	if err != nil {
		return nil, err
	}
	b, err := r.input(c.graph, "b")
	if err != nil {
		return nil, err
	}
	var alpha []float64
	for _, name := range outputs {
		a, err := r.file.wide("alpha_" + name)
		if err != nil {
			return nil, err
		}
		alpha = append(alpha, a...)
	}
	a, err := r.node(c.graph, "alpha", alpha, len(alpha))
	if err != nil {
		return nil, err
	}
	c.inputs = gorgonia.Nodes{x, phi, b, a}
	if c.cfg, err = r.file.config(x.Shape()[x.Dims()-2]); err != nil {
		return nil, err
	}
	c.coeffs, err = op.Coeffs(x, phi, b, a, c.cfg)
	return c, err
}

// output is the node of one of the outputs, by name.
func (c *coeffsGraph) output(name string) (*gorgonia.Node, error) {
	switch name {
	case "pre":
		return c.coeffs.Pre()
	case "post":
		return c.coeffs.Post()
	case "res":
		return c.coeffs.Res()
	}
	return nil, fmt.Errorf("setting use names %q, want some of %s", name, strings.Join(outputs, ", "))
}

// coefficients checks the outputs, then the gradients through the used ones.
func coefficients(r *run) error {
	forward, err := r.newCoeffs()
	if err != nil {
		return err
	}
	p := machine.Program{Graph: forward.graph}
	for _, name := range outputs {
		n, err := forward.output(name)
		if err != nil {
			return err
		}
		p.Outputs = append(p.Outputs, n)
	}
	got, err := r.compute(p)
	if err != nil {
		return err
	}
	bounds := r.bounds()
	for i, name := range outputs {
		if err := r.compare("h_"+name, got.Outputs[i], bounds.coefficients); err != nil {
			return err
		}
	}
	if err := r.mix(forward.cfg); err != nil {
		return err
	}

	backward, err := r.newCoeffs()
	if err != nil {
		return err
	}
	p = machine.Program{Graph: backward.graph, Inputs: backward.inputs}
	for _, name := range strings.Split(r.file.meta["use"], ",") {
		n, err := backward.output(name)
		if err != nil {
			return err
		}
		part, err := r.weigh(n, "upstream_"+name)
		if err != nil {
			return err
		}
		if p.Loss == nil {
			p.Loss = part
		} else if p.Loss, err = gorgonia.Add(p.Loss, part); err != nil {
			return err
		}
	}
	if got, err = r.compute(p); err != nil {
		return err
	}
	for i, want := range []struct {
		name  string
		bound float64
	}{{"grad_x", bounds.x}, {"grad_phi", bounds.phi}, {"grad_b", bounds.parameters}} {
		if err := r.compare(want.name, got.Gradients[i], want.bound); err != nil {
			return err
		}
	}
	alpha, err := numbers("grad_alpha", got.Gradients[3])
	if err != nil {
		return err
	}
	for i, name := range outputs {
		want, err := r.file.wide("grad_alpha_" + name)
		if err != nil {
			return err
		}
		if err := r.compareNumbers("grad_alpha_"+name, alpha[i:i+1], want, bounds.parameters); err != nil {
			return err
		}
	}
	return nil
}

// application checks Pre and PostRes.
func application(r *run) error {
	b := r.bounds()
	err := r.single("x_in", "upstream_x_in", []operand{
		{"x", true, "pre_grad_x", b.x},
		{"h_pre", false, "pre_grad_h_pre", b.parameters},
	}, func(in gorgonia.Nodes) (*gorgonia.Node, error) { return op.Pre(in[0], in[1]) })
	if err != nil {
		return err
	}
	return r.single("x_out", "upstream_x_out", []operand{
		{"x", true, "post_res_grad_x", b.x},
		{"f_out", true, "post_res_grad_f_out", b.x},
		{"h_post", false, "post_res_grad_h_post", b.parameters},
		{"h_res", false, "post_res_grad_h_res", b.parameters},
	}, func(in gorgonia.Nodes) (*gorgonia.Node, error) {
		return op.PostRes(in[0], in[1], in[2], in[3], mhc.ApplyRows)
	})
}

// projection checks Sinkhorn.
func projection(r *run) error {
	cfg := mhc.Liger.Config(1).Sinkhorn
	var err error
	if cfg.Iterations, err = r.file.int("tmax"); err != nil {
		return err
	}
	if cfg.Eps, err = r.file.float("eps"); err != nil {
		return err
	}
	up, err := r.file.wide("upstream")
	if err != nil {
		return err
	}
	// The reference is the difference of numbers of the upstream's size. It counts
	// where the gradient all but vanishes: of logits of +-30 it is 1e-26, and the
	// reference has rounded the entries on the diagonal, of that size too, to 0.
	r.resolution = 0x1p-52 * norm(up)
	return r.single("out", "upstream", []operand{{"logits", true, "grad_logits", r.bounds().x}},
		func(in gorgonia.Nodes) (*gorgonia.Node, error) { return op.Sinkhorn(in[0], cfg) })
}

// operand is an input of an operator and the reference of its gradient.
type operand struct {
	name   string
	stored bool // in the dtype of the streams
	grad   string
	bound  float64
}

// single checks an operator of one output and its gradients.
func (r *run) single(output, upstream string, operands []operand, apply func(gorgonia.Nodes) (*gorgonia.Node, error)) error {
	p := machine.Program{Graph: gorgonia.NewGraph()}
	for _, o := range operands {
		node := r.input
		if o.stored {
			node = r.storage
		}
		n, err := node(p.Graph, o.name)
		if err != nil {
			return err
		}
		p.Inputs = append(p.Inputs, n)
	}
	out, err := apply(p.Inputs)
	if err != nil {
		return err
	}
	if p.Loss, err = r.weigh(out, upstream); err != nil {
		return err
	}
	p.Outputs = gorgonia.Nodes{out}
	got, err := r.compute(p)
	if err != nil {
		return err
	}
	if err := r.compare(output, got.Outputs[0], r.bounds().coefficients); err != nil {
		return err
	}
	for i, o := range operands {
		if err := r.compare(o.grad, got.Gradients[i], o.bound); err != nil {
			return err
		}
	}
	return nil
}

// mix checks the normalised product that the coefficients are made of.
func (r *run) mix(cfg mhc.Config) error {
	p := machine.Program{Graph: gorgonia.NewGraph()}
	x, err := r.storage(p.Graph, "x")
	if err != nil {
		return err
	}
	phi, err := r.storage(p.Graph, "phi")
	if err != nil {
		return err
	}
	mix, err := op.MatMulRMS(x, phi, op.MatMulRMSConfig{RMSEps: cfg.RMSEps, Phi: cfg.Phi})
	if err != nil {
		return err
	}
	p.Outputs = gorgonia.Nodes{mix}
	got, err := r.compute(p)
	if err != nil {
		return err
	}
	return r.compare("mix", got.Outputs[0], r.bounds().coefficients)
}
