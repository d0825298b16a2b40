package op_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
	"pgregory.net/rapid"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/op"
	"github.com/mhc-go/mhc/sinkhorn"
)

// nodes makes nodes of a graph without values.
type nodes struct{ g *gorgonia.ExprGraph }

func (n nodes) make(name string, dt tensor.Dtype, shape ...int) *gorgonia.Node {
	return gorgonia.NewTensor(n.g, dt, len(shape), gorgonia.WithShape(shape...), gorgonia.WithName(name))
}

// What a constructor refuses, in its words.
func TestRefusals(t *testing.T) {
	const n, channels = 2, 3
	g, other := nodes{gorgonia.NewGraph()}, nodes{gorgonia.NewGraph()}
	f32 := func(name string, shape ...int) *gorgonia.Node { return g.make(name, tensor.Float32, shape...) }
	x, phi, b, alpha := f32("x", 4, n, channels), f32("phi", 6, 8), f32("b", 8), f32("alpha", 3)
	hpre, f, hres, logits := f32("hpre", 4, n), f32("f", 4, channels), f32("hres", 4, n, n), f32("logits", 4, n, n)
	headPhi, headB, headAlpha := f32("headphi", 6, n), f32("headb", n), f32("headalpha", 1)
	f64, half := g.make("f64", tensor.Float64, 4, n, channels), g.make("half", op.BFloat16, 4, n, channels)
	integer := g.make("integer", tensor.Int, 4, n, channels)
	scalar := gorgonia.NewScalar(g.g, tensor.Float32, gorgonia.WithName("scalar"))
	empty := f32("empty", 0, n, channels)
	cfg := mhc.Liger.Config(n)
	with := func(change func(*mhc.Config)) mhc.Config {
		c := cfg
		change(&c)
		return c
	}
	coeffs := func(x, phi, b, alpha *gorgonia.Node, cfg mhc.Config) error {
		c, err := op.Coeffs(x, phi, b, alpha, cfg)
		if err == nil {
			_, err = c.Pre()
		}
		return err
	}
	err := func(_ *gorgonia.Node, err error) error { return err }
	mm := op.MatMulRMSConfig{RMSEps: 1e-6}
	for _, c := range []struct {
		err  error
		want string
	}{
		{coeffs(nil, phi, b, alpha, cfg), "mhc.Coeffs: x is a nil node"},
		{coeffs(x, nil, b, alpha, cfg), "mhc.Coeffs: phi is a nil node"},
		{coeffs(x, phi, nil, alpha, cfg), "mhc.Coeffs: b is a nil node"},
		{coeffs(x, phi, b, nil, cfg), "mhc.Coeffs: alpha is a nil node"},
		{coeffs(scalar, phi, b, alpha, cfg), "mhc.Coeffs: x (scalar) is a scalar, want a tensor"},
		{coeffs(empty, phi, b, alpha, cfg), "mhc.Coeffs: x (empty) has shape (0, 2, 3): a Gorgonia tensor cannot be empty"},
		{coeffs(b, phi, b, alpha, cfg), "mhc.Coeffs: x has shape (8), want [..., streams, channels]"},
		{coeffs(integer, phi, b, alpha, cfg), "mhc.Coeffs: x is int, want float32, float64, BFloat16 or Float16"},
		{coeffs(f64, phi, b, alpha, cfg), "mhc.Coeffs: phi is float32, want float64 where x is float64"},
		{coeffs(half, g.make("f16phi", op.Float16, 6, 8), b, alpha, cfg), "mhc.Coeffs: phi is Float16, want BFloat16 or float32 where x is BFloat16"},
		{coeffs(half, phi, g.make("halfb", op.BFloat16, 8), alpha, cfg), "mhc.Coeffs: b is BFloat16, want float32 where x is BFloat16"},
		{coeffs(x, phi, b, g.make("alpha64", tensor.Float64, 3), cfg), "mhc.Coeffs: alpha is float64, want float32 where x is float32"},
		{coeffs(x, phi, b, alpha, mhc.Liger.Config(3)), "mhc.Coeffs: x has shape (4, 2, 3), want (4, 3, 3): the settings say n = 3 streams"},
		{coeffs(x, f32("phi7", 6, 7), b, alpha, cfg), "mhc.Coeffs: phi has shape (6, 7), want (6, 8): K = 6 numbers a token, M = 8 columns, layout KM"},
		{coeffs(x, phi, b, alpha, mhc.DeepSeekV4.Config(n)), "mhc.Coeffs: phi has shape (6, 8), want (8, 6): K = 6 numbers a token, M = 8 columns, layout MK"},
		{coeffs(x, phi, f32("b7", 7), alpha, cfg), "mhc.Coeffs: b has shape (7), want (8): M = n*n + 2*n, n = 2 streams"},
		{coeffs(x, phi, b, f32("alpha1", 1), cfg), "mhc.Coeffs: alpha has shape (1), want (3): one number for each of pre, post and res"},
		{coeffs(x, other.make("phi", tensor.Float32, 6, 8), b, alpha, cfg), "mhc.Coeffs: x (x) and phi (phi) are nodes of different graphs"},
		{coeffs(x, phi, b, alpha, mhc.Config{}), "mhc.Coeffs: mhc: Streams is 0, want 1 or more"},
		{coeffs(x, phi, b, alpha, with(func(c *mhc.Config) { c.RMSEps = -1 })), "mhc.Coeffs: mhc: RMSEps is -1, want a finite number of 0 or more"},
		{coeffs(x, phi, b, alpha, with(func(c *mhc.Config) { c.PreEps = math.NaN() })), "mhc.Coeffs: mhc: PreEps is NaN, want a finite number of 0 or more"},
		{coeffs(x, phi, b, alpha, with(func(c *mhc.Config) { c.Sinkhorn.Iterations = 0 })), "mhc.Coeffs: mhc: Sinkhorn: sinkhorn: Iterations is 0, want 1 or more"},

		{err(op.MatMulRMS(x, nil, mm)), "mhc.MatMulRMS: phi is a nil node"},
		{err(op.MatMulRMS(x, phi, op.MatMulRMSConfig{RMSEps: math.NaN()})), "mhc.MatMulRMS: mhc: RMSEps is NaN, want a finite number of 0 or more"},
		{err(op.MatMulRMS(x, phi, op.MatMulRMSConfig{RMSEps: -1e-6})), "mhc.MatMulRMS: mhc: RMSEps is -1e-06, want a finite number of 0 or more"},
		{err(op.MatMulRMS(x, phi, op.MatMulRMSConfig{Phi: 7})), "mhc.MatMulRMS: mhc: Phi is PhiLayout(7), want KM or MK"},
		{err(op.MatMulRMS(x, b, mm)), "mhc.MatMulRMS: phi has shape (8), want a matrix"},
		{err(op.MatMulRMS(x, f32("phi5", 5, 8), mm)), "mhc.MatMulRMS: x has shape (4, 2, 3), want [..., K] or [..., n, C] with n*C = K = 5: phi has shape (5, 8), layout KM"},
		{err(op.MatMulRMS(b, phi, mm)), "mhc.MatMulRMS: x has shape (8), want [..., K] or [..., n, C] with n*C = K = 6: phi has shape (6, 8), layout KM"},
		{err(op.MatMulRMS(f64, phi, mm)), "mhc.MatMulRMS: phi is float32, want float64 where x is float64"},
		{err(op.MatMulRMS(integer, phi, mm)), "mhc.MatMulRMS: x is int, want float32, float64, BFloat16 or Float16"},

		{err(op.Sinkhorn(nil, cfg.Sinkhorn)), "mhc.Sinkhorn: logits is a nil node"},
		{err(op.Sinkhorn(x, cfg.Sinkhorn)), "mhc.Sinkhorn: logits has shape (4, 2, 3), want [..., n, n]"},
		{err(op.Sinkhorn(b, cfg.Sinkhorn)), "mhc.Sinkhorn: logits has shape (8), want [..., n, n]"},
		{err(op.Sinkhorn(half, cfg.Sinkhorn)), "mhc.Sinkhorn: logits is BFloat16, want float32 or float64"},
		{err(op.Sinkhorn(logits, sinkhorn.Config{})), "mhc.Sinkhorn: sinkhorn: Iterations is 0, want 1 or more"},

		{err(op.Pre(x, nil)), "mhc.Pre: hpre is a nil node"},
		{err(op.Pre(b, hpre)), "mhc.Pre: x has shape (8), want [..., streams, channels]"},
		{err(op.Pre(x, b)), "mhc.Pre: hpre has shape (8), want (4, 2): x has shape (4, 2, 3)"},
		{err(op.Pre(f64, hpre)), "mhc.Pre: hpre is float32, want float64 where x is float64"},
		{err(op.Pre(x, other.make("hpre", tensor.Float32, 4, n))), "mhc.Pre: x (x) and hpre (hpre) are nodes of different graphs"},

		{err(op.PostRes(x, f, hpre, nil, mhc.ApplyRows)), "mhc.PostRes: hres is a nil node"},
		{err(op.PostRes(x, f, hpre, hres, 5)), "mhc.PostRes: apply is Apply(5), want rows or transposed"},
		{err(op.PostRes(x, hpre, hpre, hres, mhc.ApplyRows)), "mhc.PostRes: f has shape (4, 2), want (4, 3): x has shape (4, 2, 3)"},
		{err(op.PostRes(half, f, hpre, hres, mhc.ApplyRows)), "mhc.PostRes: f is float32, want BFloat16 where x is BFloat16"},
		{err(op.PostRes(x, f, f, hres, mhc.ApplyRows)), "mhc.PostRes: hpost has shape (4, 3), want (4, 2): x has shape (4, 2, 3)"},
		{err(op.PostRes(x, f, hpre, x, mhc.ApplyRows)), "mhc.PostRes: hres has shape (4, 2, 3), want (4, 2, 2): x has shape (4, 2, 3)"},
		{err(op.PostRes(logits, hpre, f32("hpost", 4, n), logits, mhc.ApplyRows)), "mhc.PostRes: x and hres are one node (logits): Gorgonia merges input nodes of equal name, type and shape, so give each its own name"},

		{err(op.Streams(nil, 2)), "mhc.Streams: x is a nil node"},
		{err(op.Streams(x, 0)), "mhc.Streams: n is 0, want 1 or more"},
		{err(op.Streams(x, -3)), "mhc.Streams: n is -3, want 1 or more"},
		{err(op.Streams(scalar, 2)), "mhc.Streams: x (scalar) is a scalar, want a tensor"},
		{err(op.Streams(integer, 2)), "mhc.Streams: x is int, want float32, float64, BFloat16 or Float16"},

		{err(op.Head(x, headPhi, headB, nil, cfg.Head())), "mhc.Head: alpha is a nil node"},
		{err(op.Head(x, phi, headB, headAlpha, cfg.Head())), "mhc.Head: phi has shape (6, 8), want (6, 2): K = 6 numbers a token, M = 2 columns, layout KM"},
		{err(op.Head(x, headPhi, b, headAlpha, cfg.Head())), "mhc.Head: b has shape (8), want (2): one number a stream"},
		{err(op.Head(x, headPhi, headB, alpha, cfg.Head())), "mhc.Head: alpha has shape (3), want (1): one number"},
		{err(op.Head(x, headPhi, headB, headAlpha, mhc.HeadConfig{RMSEps: -1})), "mhc.Head: mhc: RMSEps is -1, want a finite number of 0 or more"},

		{err(op.Cast(nil, tensor.Float32)), "mhc.Cast: x is a nil node"},
		{err(op.Cast(x, tensor.Int)), "mhc.Cast: to is int, want float32, float64, BFloat16 or Float16"},
		{err(op.Cast(integer, tensor.Float32)), "mhc.Cast: x is int, want float32, float64, BFloat16 or Float16"},
	} {
		assert.EqualError(t, c.err, c.want)
	}
	for _, n := range g.g.AllNodes() {
		assert.True(t, n.IsVar(), "a refused op left %v in the graph", n)
	}
}

// No constructor panics, whatever the shapes, dtypes and settings are.
func TestConstructorsNeverPanic(t *testing.T) {
	dtypes := []tensor.Dtype{tensor.Float64, tensor.Float32, op.BFloat16, op.Float16, tensor.Int}
	rapid.Check(t, func(t *rapid.T) {
		g := nodes{gorgonia.NewGraph()}
		node := func(name string) *gorgonia.Node {
			shape := rapid.SliceOfN(rapid.IntRange(1, 6), 0, 4).Draw(t, name+" shape")
			if len(shape) == 0 {
				return nil
			}
			return g.make(name, rapid.SampledFrom(dtypes).Draw(t, name+" dtype"), shape...)
		}
		a, b, c, d := node("a"), node("b"), node("c"), node("d")
		number := rapid.SampledFrom([]float64{0, 1e-6, 1, -1, math.NaN(), math.Inf(1)})
		cfg := mhc.Config{
			Streams: rapid.IntRange(-1, 4).Draw(t, "streams"), RMSEps: number.Draw(t, "rms"), PreEps: number.Draw(t, "pre"), PostMult: number.Draw(t, "post"),
			Sinkhorn: sinkhorn.Config{Start: sinkhorn.Start(rapid.IntRange(-1, 2).Draw(t, "start")), End: sinkhorn.Axis(rapid.IntRange(-1, 2).Draw(t, "end")),
				Iterations: rapid.IntRange(-1, 3).Draw(t, "T"), Eps: number.Draw(t, "eps")},
			Apply: mhc.Apply(rapid.IntRange(-1, 2).Draw(t, "apply")), Phi: mhc.PhiLayout(rapid.IntRange(-1, 2).Draw(t, "phi")),
		}
		check := func(n *gorgonia.Node, err error) {
			if (n == nil) == (err == nil) {
				t.Fatalf("node %v, error %v", n, err)
			}
		}
		if c, err := op.Coeffs(a, b, c, d, cfg); err == nil {
			check(c.Pre())
		}
		check(op.MatMulRMS(a, b, op.MatMulRMSConfig{RMSEps: cfg.RMSEps, Phi: cfg.Phi}))
		check(op.Sinkhorn(a, cfg.Sinkhorn))
		check(op.Pre(a, b))
		check(op.PostRes(a, b, c, d, cfg.Apply))
		check(op.Streams(a, cfg.Streams))
		check(op.Head(a, b, c, d, cfg.Head()))
		check(op.Cast(a, rapid.SampledFrom(dtypes).Draw(t, "to")))
	})
}

// A value of another shape or dtype than its node's, which built-in operators may
// return and nothing checks, is an error when the graph runs.
func TestWrongValues(t *testing.T) {
	c := float64Cases(sizes{[]int{2}, 3, 4}, mhc.Liger)[2]
	pre := opOf(t, programOf(t, c.build, c.in).Graph, "mhc.Pre")
	x, h := c.in[0].dense(), c.in[1].dense()
	require.NoError(t, h.Reshape(3, 2))
	_, err := pre.Do(x, h)
	require.EqualError(t, err, "mhc.Pre: hpre is float64 (3, 2), want float64 (2, 3)")
	_, err = pre.Do(x, gorgonia.NewF64(1))
	require.EqualError(t, err, "mhc.Pre: hpre is a *gorgonia.F64, want a *tensor.Dense")
}
