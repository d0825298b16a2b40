package gradcheck_test

import (
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"math"
	"testing"

	"github.com/chewxy/hm"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc/tests/gradcheck"
)

// square is y = x^2 by element, with the derivative factor(k) * x[k] where 2 is
// right, and other faults to plant.
type square struct {
	factor   func(k int) float64
	clobber  bool     // Do writes into its input
	counts   *float64 // Do's result changes from run to run
	oneValue bool     // the backward returns a tensor of one element
}

func twice(int) float64 { return 2 }

func (s square) Arity() int { return 1 }
func (s square) Type() hm.Type {
	v := gorgonia.TensorType{Dims: 1, Of: tensor.Float64}
	return hm.NewFnType(v, v)
}
func (s square) InferShape(in ...gorgonia.DimSizer) (tensor.Shape, error) {
	return in[0].(tensor.Shape).Clone(), nil
}
func (s square) ReturnsPtr() bool          { return false }
func (s square) CallsExtern() bool         { return false }
func (s square) OverwritesInput() int      { return -1 }
func (s square) WriteHash(h hash.Hash)     { fmt.Fprint(h, s.String()) }
func (s square) Hashcode() uint32          { h := fnv.New32a(); s.WriteHash(h); return h.Sum32() }
func (s square) String() string            { return "square" }
func (s square) DiffWRT(inputs int) []bool { return []bool{true} }

func (s square) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	x := in[0].Data().([]float64)
	y := make([]float64, len(x))
	for k, v := range x {
		y[k] = v * v
	}
	if s.clobber {
		x[0]++
	}
	return tensor.New(tensor.WithShape(len(y)), tensor.WithBacking(y)), nil
}

func (s square) SymDiff(in gorgonia.Nodes, out, grad *gorgonia.Node) (gorgonia.Nodes, error) {
	n, err := gorgonia.ApplyOp(squareBackward{s}, in[0], grad)
	return gorgonia.Nodes{n}, err
}

// squareLisp is square with DoDiff.
type squareLisp struct{ square }

func (s squareLisp) DoDiff(_ gorgonia.ExecutionContext, in gorgonia.Nodes, out *gorgonia.Node) error {
	g, err := out.Grad()
	if err != nil {
		return err
	}
	dx, err := in[0].Grad()
	if err != nil {
		return err
	}
	add := s.backward(in[0].Value().Data().([]float64), g.Data().([]float64))
	for k := range add {
		dx.Data().([]float64)[k] += add[k]
	}
	return nil
}

func (s square) backward(x, g []float64) []float64 {
	dx := make([]float64, len(x))
	for k := range x {
		dx[k] = s.factor(k) * x[k] * g[k]
		if s.counts != nil {
			*s.counts++
			dx[k] += *s.counts
		}
	}
	if s.oneValue {
		return dx[:1]
	}
	return dx
}

type squareBackward struct{ square }

func (s squareBackward) Arity() int { return 2 }
func (s squareBackward) Type() hm.Type {
	v := gorgonia.TensorType{Dims: 1, Of: tensor.Float64}
	return hm.NewFnType(v, v, v)
}
func (s squareBackward) String() string        { return "squareBackward" }
func (s squareBackward) WriteHash(h hash.Hash) { fmt.Fprint(h, s.String()) }
func (s squareBackward) Do(in ...gorgonia.Value) (gorgonia.Value, error) {
	dx := s.backward(in[0].Data().([]float64), in[1].Data().([]float64))
	return tensor.New(tensor.WithShape(len(dx)), tensor.WithBacking(dx)), nil
}

// through is sum(sin(op(cos(x)))): op has built-in neighbours on both sides.
func through(op gorgonia.Op) gradcheck.Build {
	return func(_ *gorgonia.ExprGraph, in gorgonia.Nodes) (*gorgonia.Node, error) {
		y, err := gorgonia.Cos(in[0])
		if err != nil {
			return nil, err
		}
		if y, err = gorgonia.ApplyOp(op, y); err != nil {
			return nil, err
		}
		if y, err = gorgonia.Sin(y); err != nil {
			return nil, err
		}
		return gorgonia.Sum(y)
	}
}

// direct is sum(op(x)).
func direct(op gorgonia.Op) gradcheck.Build {
	return func(_ *gorgonia.ExprGraph, in gorgonia.Nodes) (*gorgonia.Node, error) {
		y, err := gorgonia.ApplyOp(op, in[0])
		if err != nil {
			return nil, err
		}
		return gorgonia.Sum(y)
	}
}

func vector(name string, x ...float64) gradcheck.Input {
	return gradcheck.Input{Name: name, Value: tensor.New(tensor.WithShape(len(x)), tensor.WithBacking(x))}
}

func TestRightGradient(t *testing.T) {
	for _, elements := range []bool{false, true} {
		report := gradcheck.Test(t, through(squareLisp{square{factor: twice}}),
			[]gradcheck.Input{vector("x", 0.3, -1, 2, 0, 0.7)}, gradcheck.Config{Elements: elements, Directions: 3})
		assert.InDelta(t, wantLoss(0.3, -1, 2, 0, 0.7), report.Loss, 1e-14)
		assert.Less(t, report.Worst.Error, 1e-8)
		assert.Equal(t, "x", report.Worst.Input)
		want := 1 + 3*2
		if elements {
			want += 5 * 2
		}
		assert.Equal(t, want, report.Evaluations)
	}
}

func wantLoss(x ...float64) float64 {
	s := 0.0
	for _, v := range x {
		s += math.Sin(math.Cos(v) * math.Cos(v))
	}
	return s
}

func TestPlantedWrongElement(t *testing.T) {
	wrong := squareLisp{square{factor: func(k int) float64 {
		if k == 3 {
			return 2.01
		}
		return 2
	}}}
	for _, m := range []gradcheck.Machine{gradcheck.Tape, gradcheck.Lisp} {
		report, err := gradcheck.Check(through(wrong), []gradcheck.Input{vector("x", 0.3, -1, 2, 0.9, 0.7)},
			gradcheck.Config{Machines: []gradcheck.Machine{m}})
		var mismatch *gradcheck.Mismatch
		require.True(t, errors.As(err, &mismatch), "%v", err)
		assert.Equal(t, report.Worst, mismatch.Difference)
		assert.Equal(t, m, report.Worst.Machine)
		assert.Equal(t, "x", report.Worst.Input)
		assert.Equal(t, []int{3}, report.Worst.Index)
		assert.InDelta(t, 1.005, report.Worst.Gradient/report.Worst.Numeric, 1e-6)
		assert.ErrorContains(t, err, "gradient of x, element [3]")
	}
}

func TestSwappedElements(t *testing.T) {
	swapped := func(_ *gorgonia.ExprGraph, in gorgonia.Nodes) (*gorgonia.Node, error) {
		return direct(squareLisp{square{factor: func(k int) float64 { return []float64{2 * 5. / 3, 2 * 3. / 5}[k] }}})(nil, in)
	}
	_, err := gradcheck.Check(swapped, []gradcheck.Input{vector("x", 3, 5)}, gradcheck.Config{})
	assert.ErrorContains(t, err, "gradient of x, element [0]")
}

func TestOpWithoutDoDiff(t *testing.T) {
	inputs := []gradcheck.Input{vector("x", 0.3, -1, 2)}
	_, err := gradcheck.Check(through(square{factor: twice}), inputs, gradcheck.Config{})
	assert.ErrorContains(t, err, "lisp: gradient of x, element")
	assert.ErrorContains(t, err, "may lack DoDiff")
	_, err = gradcheck.Check(through(square{factor: twice}), inputs, gradcheck.Config{Machines: []gradcheck.Machine{gradcheck.Tape}})
	assert.NoError(t, err)
}

func TestFaultsBesideTheNumbers(t *testing.T) {
	var count float64
	inputs := []gradcheck.Input{vector("x", 0.3, -1, 2)}
	for name, c := range map[string]struct {
		build gradcheck.Build
		want  string
	}{
		"writes into its input": {direct(squareLisp{square{factor: twice, clobber: true}}), "the run wrote into input x"},
		"state in the op":       {direct(squareLisp{square{factor: twice, counts: &count}}), "input x has another gradient when the machine runs again"},
		"gradient's shape":      {direct(squareLisp{square{factor: twice, oneValue: true}}), "gradient of input x is float64 of shape (1), want float64 (3)"},
		"panic while building":  {func(*gorgonia.ExprGraph, gorgonia.Nodes) (*gorgonia.Node, error) { panic("no") }, "forward pass: building the graph: panic: no"},
		"no loss":               {func(*gorgonia.ExprGraph, gorgonia.Nodes) (*gorgonia.Node, error) { return nil, nil }, "the loss is nil"},
		"error while building":  {func(*gorgonia.ExprGraph, gorgonia.Nodes) (*gorgonia.Node, error) { return nil, errors.New("bad") }, "building the graph: bad"},
		"loss of many elements": {func(_ *gorgonia.ExprGraph, in gorgonia.Nodes) (*gorgonia.Node, error) { return in[0], nil }, "the loss is float64 of shape (3), want a float64 scalar"},
		"loss not finite": {func(_ *gorgonia.ExprGraph, in gorgonia.Nodes) (*gorgonia.Node, error) {
			return gorgonia.Sum(gorgonia.Must(gorgonia.Log(in[0])))
		}, "the loss is NaN"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := gradcheck.Check(c.build, inputs, gradcheck.Config{Machines: []gradcheck.Machine{gradcheck.Tape}})
			require.ErrorContains(t, err, "gradcheck: ")
			assert.ErrorContains(t, err, c.want)
		})
	}
}

func TestRefusals(t *testing.T) {
	ok := direct(squareLisp{square{factor: twice}})
	x := vector("x", 1, 2)
	sliced, err := tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1, 2, 3, 4})).Slice(nil, tensor.S(0))
	require.NoError(t, err)
	for want, c := range map[string]struct {
		build  gradcheck.Build
		inputs []gradcheck.Input
		cfg    gradcheck.Config
	}{
		"build is nil":                         {nil, []gradcheck.Input{x}, gradcheck.Config{}},
		"no inputs":                            {ok, nil, gradcheck.Config{}},
		`input 0 is named ""`:                  {ok, []gradcheck.Input{vector("", 1)}, gradcheck.Config{}},
		`input 1 is named "x"`:                 {ok, []gradcheck.Input{x, x}, gradcheck.Config{}},
		"input x is nil":                       {ok, []gradcheck.Input{{Name: "x"}}, gradcheck.Config{}},
		"input x is float32, want float64":     {ok, []gradcheck.Input{{Name: "x", Value: tensor.New(tensor.Of(tensor.Float32), tensor.WithShape(2))}}, gradcheck.Config{}},
		"input x is not contiguous":            {ok, []gradcheck.Input{{Name: "x", Value: sliced.(*tensor.Dense)}}, gradcheck.Config{}},
		"Machines holds Kind(7)":               {ok, []gradcheck.Input{x}, gradcheck.Config{Machines: []gradcheck.Machine{7}}},
		"Directions is -1":                     {ok, []gradcheck.Input{x}, gradcheck.Config{Directions: -1}},
		"Step is -1 and Tolerance 1e-06":       {ok, []gradcheck.Input{x}, gradcheck.Config{Step: -1}},
		"Tolerance NaN, want positive numbers": {ok, []gradcheck.Input{x}, gradcheck.Config{Tolerance: math.NaN()}},
	} {
		_, err := gradcheck.Check(c.build, c.inputs, c.cfg)
		assert.ErrorContains(t, err, want)
	}
}

// A scalar input, a matrix and inputs of very different sizes.
func TestShapesAndScales(t *testing.T) {
	inputs := []gradcheck.Input{
		{Name: "s", Value: tensor.New(tensor.FromScalar(3.0))},
		{Name: "m", Value: tensor.New(tensor.WithShape(2, 2), tensor.WithBacking([]float64{1e-6, 2e-6, -1e-6, 0}))},
		{Name: "big", Value: tensor.New(tensor.WithShape(2), tensor.WithBacking([]float64{1e6, -3e6}))},
	}
	build := func(_ *gorgonia.ExprGraph, in gorgonia.Nodes) (*gorgonia.Node, error) {
		y, err := gorgonia.Mul(in[1], in[2])
		if err != nil {
			return nil, err
		}
		if y, err = gorgonia.Mul(y, in[0]); err != nil {
			return nil, err
		}
		return gorgonia.Sum(gorgonia.Must(gorgonia.Sin(y)))
	}
	report := gradcheck.Test(t, build, inputs, gradcheck.Config{Elements: true, Machines: []gradcheck.Machine{gradcheck.Tape}})
	assert.InDelta(t, math.Sin(3*(1-6))+math.Sin(-3), report.Loss, 1e-12)
}
