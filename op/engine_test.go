package op_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/op"
	"github.com/mhc-go/mhc/sinkhorn"
)

// recorder is an engine that notes the calls it gets and what tensors they are
// about, and then says that it does not support them (or what err is).
type recorder struct {
	tensor.StdEng
	name  string
	err   error
	panic any

	mu    sync.Mutex
	calls []string
}

var _ op.Engine = (*recorder)(nil)

func (e *recorder) String() string { return e.name }

func (e *recorder) record(call string, ts ...tensor.Tensor) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range ts {
		call += " "
		if t == nil {
			call += "-"
			continue
		}
		call += fmt.Sprint(t.Shape())
	}
	e.calls = append(e.calls, call)
	if e.panic != nil {
		panic(e.panic)
	}
	if e.err != nil {
		return e.err
	}
	return fmt.Errorf("recorder: %w", errors.ErrUnsupported)
}

func (e *recorder) Coeffs(in op.CoeffsInputs, _ mhc.Config) (op.CoeffsOutputs, error) {
	return op.CoeffsOutputs{}, e.record("Coeffs", in.X, in.Phi, in.B, in.Alpha)
}

func (e *recorder) CoeffsBackward(in op.CoeffsInputs, kept op.CoeffsOutputs, up op.CoeffsUpstream, _ mhc.Config) (op.CoeffsGradients, error) {
	return op.CoeffsGradients{}, e.record("CoeffsBackward", in.X, in.Phi, in.B, in.Alpha, kept.Mix, kept.R, up.Pre, up.Post, up.Res)
}

func (e *recorder) MatMulRMS(x, phi tensor.Tensor, _ op.MatMulRMSConfig) (mix, r tensor.Tensor, err error) {
	return nil, nil, e.record("MatMulRMS", x, phi)
}

func (e *recorder) MatMulRMSBackward(x, phi, mix, r, dmix tensor.Tensor, _ op.MatMulRMSConfig) (dx, dphi tensor.Tensor, err error) {
	return nil, nil, e.record("MatMulRMSBackward", x, phi, mix, r, dmix)
}

func (e *recorder) Sinkhorn(logits tensor.Tensor, _ sinkhorn.Config) (tensor.Tensor, error) {
	return nil, e.record("Sinkhorn", logits)
}

func (e *recorder) SinkhornBackward(logits, dout tensor.Tensor, _ sinkhorn.Config) (tensor.Tensor, error) {
	return nil, e.record("SinkhornBackward", logits, dout)
}

func (e *recorder) Pre(x, hpre tensor.Tensor) (tensor.Tensor, error) {
	return nil, e.record("Pre", x, hpre)
}

func (e *recorder) PreBackward(x, hpre, g tensor.Tensor) (dx, dhpre tensor.Tensor, err error) {
	return nil, nil, e.record("PreBackward", x, hpre, g)
}

func (e *recorder) PostRes(in op.PostResInputs, _ mhc.Apply) (tensor.Tensor, error) {
	return nil, e.record("PostRes", in.X, in.F, in.HPost, in.HRes)
}

func (e *recorder) PostResBackward(in op.PostResInputs, g tensor.Tensor, _ mhc.Apply) (op.PostResInputs, error) {
	return op.PostResInputs{}, e.record("PostResBackward", in.X, in.F, in.HPost, in.HRes, g)
}

func (e *recorder) Streams(x tensor.Tensor, n int) (tensor.Tensor, error) {
	return nil, e.record(fmt.Sprint("Streams ", n), x)
}

func (e *recorder) StreamsBackward(g tensor.Tensor) (tensor.Tensor, error) {
	return nil, e.record("StreamsBackward", g)
}

func (e *recorder) Head(in op.HeadInputs, _ mhc.HeadConfig) (op.HeadOutputs, error) {
	return op.HeadOutputs{}, e.record("Head", in.X, in.Phi, in.B, in.Alpha)
}

func (e *recorder) HeadBackward(in op.HeadInputs, kept op.HeadOutputs, g tensor.Tensor, _ mhc.HeadConfig) (op.HeadInputs, error) {
	return op.HeadInputs{}, e.record("HeadBackward", in.X, in.Phi, in.B, in.Alpha, kept.Mix, kept.R, g)
}

func (e *recorder) Cast(x tensor.Tensor, to tensor.Dtype) (tensor.Tensor, error) {
	return nil, e.record("Cast", x)
}

func (e *recorder) AddAll(terms ...tensor.Tensor) (tensor.Tensor, error) {
	return nil, e.record("AddAll", terms...)
}

// Every op asks the engine first, with exactly the tensors that the interface
// promises, and goes to the CPU where the engine does not support it.
func TestEngineDispatch(t *testing.T) {
	want := map[string][]string{
		"MatMulRMS": {"MatMulRMS (2, 3, 4) (12, 5)", "MatMulRMSBackward (2, 3, 4) (12, 5) (2, 5) (2) (2, 5)"},
		"Sinkhorn":  {"Sinkhorn (2, 3, 3)", "SinkhornBackward (2, 3, 3) (2, 3, 3)"},
		"Pre":       {"Pre (2, 3, 4) (2, 3)", "PreBackward (2, 3, 4) (2, 3) (2, 4)"},
		"PostRes":   {"PostRes (2, 3, 4) (2, 4) (2, 3) (2, 3, 3)", "PostResBackward (2, 3, 4) (2, 4) (2, 3) (2, 3, 3) (2, 3, 4)"},
		"Streams":   {"Streams 3 (2, 4)", "StreamsBackward (2, 3, 4)"},
		"Head":      {"Head (2, 3, 4) (12, 3) (3) (1)", "HeadBackward (2, 3, 4) (12, 3) (3) (1) (2, 3) (2) (2, 4)"},
		"Coeffs/{pre:true post:true res:true}": {"Coeffs (2, 3, 4) (12, 15) (15) (3)",
			"CoeffsBackward (2, 3, 4) (12, 15) (15) (3) (2, 15) (2) (2, 3) (2, 3) (2, 3, 3)"},
		"Coeffs/{pre:false post:true res:false}": {"Coeffs (2, 3, 4) (12, 15) (15) (3)",
			"CoeffsBackward (2, 3, 4) (12, 15) (15) (3) (2, 15) (2) - (2, 3) -"},
	}
	cases := float64Cases(sizes{[]int{2}, 3, 4}, mhc.Liger)
	for name, calls := range want {
		c := cases[slices.IndexFunc(cases, func(c opCase) bool { return c.name == name })]
		t.Run(name, func(t *testing.T) {
			eachMachine(t, func(t *testing.T, kind machine.Kind) {
				e := &recorder{}
				want := run(t, kind, programOf(t, c.build, c.in))
				got := run(t, kind, programOf(t, c.build, c.in), gorgonia.WithEngine(e))
				assert.Equal(t, calls, e.calls)
				assertSameResult(t, want, got)
			})
		})
	}
	t.Run("Cast and AddAll", func(t *testing.T) {
		in := []operand{random(randoms(8), "x", tensor.Float32, 2, 2, 3), random(randoms(9), "h", tensor.Float32, 2, 2)}
		b := func(in gorgonia.Nodes) (gorgonia.Nodes, error) {
			x, err := op.Cast(in[0], op.BFloat16)
			if err != nil {
				return nil, err
			}
			y, err := op.Pre(x, in[1])
			return gorgonia.Nodes{x, y}, err
		}
		eachMachine(t, func(t *testing.T, kind machine.Kind) {
			e := &recorder{}
			run(t, kind, programOf(t, b, in), gorgonia.WithEngine(e))
			assert.Contains(t, e.calls, "Cast (2, 2, 3)")
			assert.Contains(t, e.calls, "AddAll (2, 2, 3) (2, 2, 3)")
		})
	})
}

// An engine's error is the machine's, and a panic in it does not end the process.
func TestEngineErrors(t *testing.T) {
	failure := errors.New("out of device memory")
	c := float64Cases(sizes{[]int{2}, 3, 4}, mhc.Liger)[0]
	for _, e := range []*recorder{{err: failure}, {panic: failure}} {
		m, err := machine.New(machine.Tape, programOf(t, c.build, c.in), gorgonia.WithEngine(e))
		require.NoError(t, err)
		_, err = m.Run()
		require.ErrorContains(t, err, "mhc.MatMulRMS: ")
		require.ErrorContains(t, err, "out of device memory")
		require.NoError(t, m.Close())
	}
}

// Tensors of two engines do not meet in an op.
func TestDifferentDevices(t *testing.T) {
	c := float64Cases(sizes{[]int{2}, 3, 4}, mhc.Liger)[2]
	x, h := c.in[0].dense(), c.in[1].dense()
	tensor.WithEngine(&recorder{name: "first"})(x)
	tensor.WithEngine(&recorder{name: "second"})(h)
	_, err := opOf(t, programOf(t, c.build, c.in).Graph, "mhc.Pre").Do(x, h)
	require.EqualError(t, err, "mhc.Pre: the tensors lie on different devices: engines first and second")
}

// inaccessible is an engine without mHC operators whose memory Go cannot reach.
type inaccessible struct{ tensor.StdEng }

func (inaccessible) AllocAccessible() bool { return false }

func TestForeignDeviceMemory(t *testing.T) {
	c := float64Cases(sizes{[]int{2}, 3, 4}, mhc.Liger)[2]
	pre := opOf(t, programOf(t, c.build, c.in).Graph, "mhc.Pre")
	x, h := c.in[0].dense(), c.in[1].dense()
	tensor.WithEngine(inaccessible{})(x)
	_, err := pre.Do(x, h)
	require.EqualError(t, err, "mhc.Pre: a tensor lies in device memory whose engine (op_test.inaccessible) does not compute this operator on float64")

	view := tensor.New(tensor.WithShape(4, 3, 2), tensor.Of(tensor.Float64))
	require.NoError(t, view.T(2, 1, 0))
	tensor.WithEngine(inaccessible{})(view)
	_, err = pre.Do(view, h)
	require.EqualError(t, err, "mhc.Pre: x is non-contiguous (shape (2, 3, 4), strides [1 2 6]) in device memory")
}

// opOf finds the op of that name in a graph.
func opOf(t *testing.T, g *gorgonia.ExprGraph, name string) gorgonia.Op {
	for _, n := range g.AllNodes() {
		if n.Op() != nil && n.Op().String() == name {
			return n.Op()
		}
	}
	require.Failf(t, "not in the graph", "%s", name)
	return nil
}
