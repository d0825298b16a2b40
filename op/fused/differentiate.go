package fused

import (
	"fmt"
	"hash"
	"slices"
	"strings"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// forward is the node operator that computes all outputs.
type forward struct {
	common
	*Operator
}

func (f forward) Arity() int          { return len(f.Inputs) }
func (f forward) Settings() []Setting { return f.Operator.Settings }
func (f forward) Type() hm.Type       { return functionType(f.Inputs) }

func (forward) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	return tokenShape.Clone(), nil
}

func (f forward) WriteHash(h hash.Hash) { fmt.Fprintf(h, "%v %v", f, f.Inputs) }
func (f forward) Hashcode() uint32      { return hashcode(f) }

func (f forward) Do(values ...gorgonia.Value) (v gorgonia.Value, err error) {
	err = run(f.Name, func() error {
		in, err := tensorsOf(values, f.Inputs)
		if err != nil {
			return err
		}
		out, err := f.Forward(in)
		if err != nil {
			return err
		}
		if err := checkAll(out, f.Outputs, false); err != nil {
			return err
		}
		v = newBundle(out)
		return nil
	})
	return v, err
}

func (f forward) DiffWRT(inputs int) []bool {
	all := make([]bool, inputs)
	for i := range all {
		all[i] = true
	}
	return all
}

// SymDiff makes the backward node, whose operands are what Backward reads, and
// the gradient nodes.
func (f forward) SymDiff(inputs gorgonia.Nodes, node, _ *gorgonia.Node) (gorgonia.Nodes, error) {
	var operands gorgonia.Nodes
	for _, i := range f.BackwardInputs {
		operands = append(operands, inputs[i])
	}
	for _, i := range f.BackwardOutputs {
		n, err := outputNode(f.Operator, i, node)
		if err != nil {
			return nil, err
		}
		operands = append(operands, n)
	}
	b := backward{Operator: f.Operator, used: make([]bool, len(f.Outputs))}
	up := make(gorgonia.Nodes, len(f.Outputs))
	for it := node.Graph().To(node.ID()); it.Next(); {
		n := it.Node().(*gorgonia.Node)
		if v, ok := n.Op().(output); ok && n.Deriv() != nil {
			up[v.index] = n.Deriv()
		}
	}
	for i, n := range up {
		if n != nil {
			b.used[i] = true
			operands = append(operands, n)
		}
	}
	bundle, err := gorgonia.ApplyOp(b, operands...)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", b, err)
	}
	grads := make(gorgonia.Nodes, len(inputs))
	for i := range grads {
		if grads[i], err = gradientNode(f.Operator, i, bundle); err != nil {
			return nil, err
		}
	}
	return grads, nil
}

// DoDiff runs Backward on what the output nodes left in the bundle, and adds to
// the gradients of the inputs.
func (f forward) DoDiff(_ gorgonia.ExecutionContext, inputs gorgonia.Nodes, node *gorgonia.Node) error {
	return run(f.Name+".backward", func() error {
		b, ok := node.Value().(*Bundle)
		if !ok {
			return errNoBundle
		}
		values := make([]gorgonia.Value, len(inputs))
		for i, n := range inputs {
			values[i] = n.Value()
		}
		in, err := tensorsOf(values, f.Inputs)
		if err != nil {
			return err
		}
		grads, err := f.gradients(Tape{
			In:  pick(in, f.BackwardInputs),
			Out: pick(b.results, f.BackwardOutputs),
			Up:  b.upstream,
		})
		if err != nil {
			return err
		}
		for i, n := range inputs {
			d, err := n.Grad()
			if err != nil {
				return err
			}
			if err := f.accumulate(d.(tensor.Tensor), grads[i]); err != nil {
				return fmt.Errorf("gradient of %s: %w", f.Inputs[i].Name, err)
			}
		}
		return nil
	})
}

// gradients is Backward with its arguments and results checked.
func (o *Operator) gradients(t Tape) ([]tensor.Tensor, error) {
	if err := checkAll(t.Up, o.Outputs, true); err != nil {
		return nil, fmt.Errorf("upstream gradient: %w", err)
	}
	grads, err := o.Backward(t)
	if err != nil {
		return nil, err
	}
	if err := checkAll(grads, o.Inputs, false); err != nil {
		return nil, fmt.Errorf("gradient: %w", err)
	}
	return grads, nil
}

// pick returns a slice of the length of ts with only the tensors at the indices.
func pick(ts []tensor.Tensor, indices []int) []tensor.Tensor {
	picked := make([]tensor.Tensor, len(ts))
	for _, i := range indices {
		picked[i] = ts[i]
	}
	return picked
}

// accumulate adds src to dst in place.
func (o *Operator) accumulate(dst, src tensor.Tensor) error {
	if addable(dst.Dtype()) {
		_, err := tensor.Add(dst, src, tensor.UseUnsafe())
		return err
	}
	sum, err := o.Sum(dst, src)
	if err != nil {
		return err
	}
	return tensor.Copy(dst, sum)
}

// backward is the node operator that computes the gradients of all inputs. Its
// operands are the BackwardInputs, the BackwardOutputs and the gradients of the
// used outputs.
type backward struct {
	common
	*Operator
	used []bool
}

// operands describes the operands of the node.
func (b backward) operands() []Operand {
	var all []Operand
	for _, i := range b.BackwardInputs {
		all = append(all, b.Inputs[i])
	}
	for _, i := range b.BackwardOutputs {
		all = append(all, b.Outputs[i])
	}
	for i, o := range b.Outputs {
		if b.used[i] {
			o.Name = "gradient of " + o.Name
			all = append(all, o)
		}
	}
	return all
}

func (b backward) Arity() int    { return len(b.operands()) }
func (b backward) Type() hm.Type { return functionType(b.operands()) }

func (backward) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	return tokenShape.Clone(), nil
}

// Settings are the operator's, and the outputs whose gradients are there.
func (b backward) Settings() []Setting {
	var used []string
	for i, o := range b.Outputs {
		if b.used[i] {
			used = append(used, o.Name)
		}
	}
	return append(slices.Clip(b.Operator.Settings), Setting{"of", strings.Join(used, ",")})
}

func (b backward) String() string {
	return (&Operator{Name: b.Name + ".backward", Settings: b.Settings()}).String()
}

func (b backward) WriteHash(h hash.Hash) { fmt.Fprintf(h, "%v %v", b, b.Inputs) }
func (b backward) Hashcode() uint32      { return hashcode(b) }

func (b backward) Do(values ...gorgonia.Value) (v gorgonia.Value, err error) {
	err = run(b.Name+".backward", func() error {
		operands, err := tensorsOf(values, b.operands())
		if err != nil {
			return err
		}
		next := func() (t tensor.Tensor) {
			t, operands = operands[0], operands[1:]
			return t
		}
		t := Tape{
			In:  make([]tensor.Tensor, len(b.Inputs)),
			Out: make([]tensor.Tensor, len(b.Outputs)),
			Up:  make([]tensor.Tensor, len(b.Outputs)),
		}
		for _, i := range b.BackwardInputs {
			t.In[i] = next()
		}
		for _, i := range b.BackwardOutputs {
			t.Out[i] = next()
		}
		for i, used := range b.used {
			if used {
				t.Up[i] = next()
			}
		}
		grads, err := b.gradients(t)
		if err != nil {
			return err
		}
		v = newBundle(grads)
		return nil
	})
	return v, err
}

// DiffWRT says that there are no second derivatives, so Grad refuses them.
func (b backward) DiffWRT(inputs int) []bool { return make([]bool, inputs) }

func (b backward) SymDiff(gorgonia.Nodes, *gorgonia.Node, *gorgonia.Node) (gorgonia.Nodes, error) {
	return nil, fmt.Errorf("%v: there is no second derivative", b)
}

func functionType(operands []Operand) hm.Type {
	types := make([]hm.Type, 0, len(operands)+1)
	for _, o := range operands {
		types = append(types, gorgonia.TensorType{Dims: len(o.Shape), Of: o.Dtype})
	}
	return hm.NewFnType(append(types, tokenType)...)
}

// tensorsOf returns values as contiguous tensors and checks that they are what
// is described: built-in operators do not always return what they announce.
func tensorsOf(values []gorgonia.Value, want []Operand) ([]tensor.Tensor, error) {
	ts := make([]tensor.Tensor, len(values))
	for i, v := range values {
		t, err := tensorOf(v)
		if err != nil {
			return nil, fmt.Errorf("%s %w", want[i].Name, err)
		}
		ts[i] = t
	}
	return ts, checkAll(ts, want, false)
}
