package fused

import (
	"fmt"
	"hash"
	"hash/fnv"

	"github.com/chewxy/hm"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Bundle is the value of a node that has several results. To Gorgonia it is a
// tensor of one float32, the embedded one, whose content means nothing; so
// machines may watch, clone, trace and add it.
type Bundle struct {
	*tensor.Dense
	results []tensor.Tensor
	// upstream are the gradients by the results, put here by the output nodes
	// during the backward pass of a LispMachine.
	upstream []tensor.Tensor
}

// IsBundle says whether n's value is a [Bundle]: that of an operator of this
// package and of its backward, whose results are nodes of their own.
func IsBundle(n *gorgonia.Node) bool {
	switch n.Op().(type) {
	case forward, backward:
		return true
	}
	return false
}

func newBundle(results []tensor.Tensor) *Bundle {
	return &Bundle{Dense: newToken(), results: results, upstream: make([]tensor.Tensor, len(results))}
}

// newToken makes the tensor that stands for a bundle and for a bundle's gradient.
func newToken() *tensor.Dense {
	return tensor.New(tensor.WithShape(tokenShape...), tensor.WithBacking([]float32{0}))
}

var (
	tokenType  hm.Type = gorgonia.TensorType{Dims: 1, Of: tensor.Float32}
	tokenShape         = tensor.Shape{1}
)

// output hands out one result of a bundle.
type output struct {
	common
	operator *Operator
	index    int
	operand  Operand
	// grad says that the result is a gradient, which is not differentiated again.
	grad bool
}

func outputNode(o *Operator, i int, bundle *gorgonia.Node) (*gorgonia.Node, error) {
	return applyOutput(output{operator: o, index: i, operand: o.Outputs[i]}, bundle)
}

func gradientNode(o *Operator, i int, bundle *gorgonia.Node) (*gorgonia.Node, error) {
	return applyOutput(output{operator: o, index: i, operand: o.Inputs[i], grad: true}, bundle)
}

func applyOutput(v output, bundle *gorgonia.Node) (*gorgonia.Node, error) {
	n, err := gorgonia.ApplyOp(v, bundle)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", v, err)
	}
	return n, nil
}

func (v output) Arity() int          { return 1 }
func (v output) Settings() []Setting { return nil }

func (v output) Type() hm.Type {
	return hm.NewFnType(tokenType, gorgonia.TensorType{Dims: len(v.operand.Shape), Of: v.operand.Dtype})
}

func (v output) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) {
	return v.operand.Shape.Clone(), nil
}

func (v output) String() string {
	if v.grad {
		return v.operator.Name + ".backward.d" + v.operand.Name
	}
	return v.operator.Name + "." + v.operand.Name
}

func (v output) WriteHash(h hash.Hash) {
	fmt.Fprintf(h, "%v#%d %v %v", v, v.index, v.operand.Dtype, v.operand.Shape)
}

func (v output) Hashcode() uint32 { return hashcode(v) }

func (v output) Do(values ...gorgonia.Value) (gorgonia.Value, error) {
	b, ok := values[0].(*Bundle)
	if !ok {
		return nil, fmt.Errorf("%v: %w", v, errNoBundle)
	}
	return b.results[v.index], nil
}

func (v output) DiffWRT(int) []bool { return []bool{!v.grad} }

// SymDiff returns a token that stands for the gradient: the operator's own
// SymDiff reads the gradient from this node, as its Deriv.
func (v output) SymDiff(inputs gorgonia.Nodes, _, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	if inputs[0].Deriv() != nil {
		return nil, fmt.Errorf("%v: Grad was called on this graph before, and does not go through %s again: its gradients would lack this output. Call Grad once", v, v.operator.Name)
	}
	n, err := gorgonia.ApplyOp(token{of: v.operand}, grad)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", v, err)
	}
	return gorgonia.Nodes{n}, nil
}

// DoDiff leaves the gradient in the bundle.
func (v output) DoDiff(_ gorgonia.ExecutionContext, inputs gorgonia.Nodes, node *gorgonia.Node) error {
	return run(v.String(), func() error {
		b, ok := inputs[0].Value().(*Bundle)
		if !ok {
			return errNoBundle
		}
		g, err := node.Grad()
		if err != nil {
			return err
		}
		b.upstream[v.index], err = tensorOf(g)
		return err
	})
}

// token is the gradient of a bundle: nothing but a node for Gorgonia to add up.
type token struct {
	common
	of Operand
}

func (token) Arity() int { return 1 }

func (t token) Type() hm.Type {
	return hm.NewFnType(gorgonia.TensorType{Dims: len(t.of.Shape), Of: t.of.Dtype}, tokenType)
}

func (token) InferShape(...gorgonia.DimSizer) (tensor.Shape, error) { return tokenShape.Clone(), nil }
func (token) Do(...gorgonia.Value) (gorgonia.Value, error)          { return newToken(), nil }
func (token) String() string                                        { return "token" }
func (t token) WriteHash(h hash.Hash)                               { fmt.Fprint(h, t.String()) }
func (t token) Hashcode() uint32                                    { return hashcode(t) }

// common are the answers that all operators of this package give.
type common struct{}

func (common) ReturnsPtr() bool     { return true }
func (common) CallsExtern() bool    { return false }
func (common) OverwritesInput() int { return -1 }

func hashcode(o interface{ WriteHash(hash.Hash) }) uint32 {
	h := fnv.New32a()
	o.WriteHash(h)
	return h.Sum32()
}
