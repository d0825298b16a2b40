package op_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/op"
)

// The traps of Gorgonia that this package's documentation warns of. A test here
// that fails says that Gorgonia has changed.

// Input nodes of one name merge, and so do those without one. Head with one
// stream is where operands of equal shape meet: it refuses a merged pair.
func TestInputsOfOneNameMerge(t *testing.T) {
	g := gorgonia.NewGraph()
	vector := func(opts ...gorgonia.NodeConsOpt) *gorgonia.Node {
		return gorgonia.NewVector(g, tensor.Float32, append(opts, gorgonia.WithShape(1))...)
	}
	assert.Same(t, vector(gorgonia.WithName("b")), vector(gorgonia.WithName("b")))
	b, alpha := vector(), vector()
	assert.Same(t, b, alpha)
	x, phi := (nodes{g}).make("x", tensor.Float32, 4, 1, 3), (nodes{g}).make("phi", tensor.Float32, 3, 1)
	_, err := op.Head(x, phi, b, alpha, mhc.Liger.Config(1).Head())
	require.ErrorContains(t, err, "mhc.Head: b and alpha are one node")
}

// LispMachine refuses a root that is not scalar. Outputs that are not asked for
// are no roots; one that is asked for and not used is.
func TestUnusedOutputs(t *testing.T) {
	t.Chdir(t.TempDir()) // LispMachine writes err.dot to the working directory
	c := float64Cases(sizes{[]int{2}, 3, 4}, mhc.Liger)
	last := c[len(c)-1]
	p := programOf(t, last.build, last.in)
	run(t, machine.Lisp, p)

	p = programOf(t, last.build, last.in)
	_, err := op.MatMulRMS(p.Inputs[0], p.Inputs[1], op.MatMulRMSConfig{RMSEps: 1e-6})
	require.NoError(t, err)
	m, err := machine.New(machine.Lisp, p)
	require.NoError(t, err)
	_, err = m.Run()
	require.ErrorContains(t, err, "Expected cost to be a scalar")
	require.FileExists(t, "err.dot")
	require.NoError(t, os.Remove("err.dot"))
}

// A coefficient op that nothing was asked of leaves no node behind.
func TestCoeffsMakeNodesOnDemand(t *testing.T) {
	g := nodes{gorgonia.NewGraph()}
	x, phi := g.make("x", tensor.Float32, 4, 2, 3), g.make("phi", tensor.Float32, 6, 8)
	b, alpha := g.make("b", tensor.Float32, 8), g.make("alpha", tensor.Float32, 3)
	c, err := op.Coeffs(x, phi, b, alpha, mhc.Liger.Config(2))
	require.NoError(t, err)
	assert.Len(t, g.g.AllNodes(), 4)
	pre, err := c.Pre()
	require.NoError(t, err)
	assert.Len(t, g.g.AllNodes(), 6)
	again, err := c.Pre()
	require.NoError(t, err)
	assert.Same(t, pre, again)
	assert.Len(t, g.g.AllNodes(), 6)
}

// A second Grad on a graph does not go through nodes that have a gradient. Where
// it reaches an op by another output, that is an error instead of a gradient that
// lacks a term.
func TestSecondGrad(t *testing.T) {
	c := float64Cases(sizes{[]int{2}, 3, 4}, mhc.Liger)
	p := programOf(t, c[len(c)-1].build, c[len(c)-1].in) // pre, post and res
	pre, err := gorgonia.Sum(p.Outputs[0])
	require.NoError(t, err)
	post, err := gorgonia.Sum(p.Outputs[1])
	require.NoError(t, err)
	_, err = gorgonia.Grad(pre, p.Inputs[1])
	require.NoError(t, err)
	_, err = gorgonia.Grad(post, p.Inputs[1])
	require.ErrorContains(t, err, "mhc.Coeffs.post: Grad was called on this graph before, and does not go through mhc.Coeffs again")
}

// There are no second derivatives, and asking for one says so.
func TestSecondDerivative(t *testing.T) {
	c := float64Cases(sizes{[]int{2}, 3, 4}, mhc.Liger)[2]
	p := programOf(t, c.build, c.in)
	grads, err := gorgonia.Grad(p.Loss, p.Inputs[0])
	require.NoError(t, err)
	square, err := gorgonia.Square(grads[0])
	require.NoError(t, err)
	loss, err := gorgonia.Sum(square)
	require.NoError(t, err)
	_, err = gorgonia.Grad(loss, p.Inputs[1])
	require.Error(t, err)
}
