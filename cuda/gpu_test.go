package cuda_test

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorgonia.org/gorgonia"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/coeffs"
	"github.com/mhc-go/mhc/cuda"
	"github.com/mhc-go/mhc/cuda/driver"
	"github.com/mhc-go/mhc/cuda/kernels"
	"github.com/mhc-go/mhc/cuda/plan"
	"github.com/mhc-go/mhc/internal/machine"
	"github.com/mhc-go/mhc/op"
	"github.com/mhc-go/mhc/streams"
)

// gpu makes an engine; without a GPU it skips the test, or fails it where one is
// required.
func gpu(t *testing.T) *cuda.Engine {
	t.Helper()
	e, err := cuda.New()
	if err != nil {
		if os.Getenv(cuda.RequireVariable) == "1" {
			require.NoError(t, err, "%s=1", cuda.RequireVariable)
		}
		t.Skipf("needs a GPU: %v", err)
	}
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func TestARequiredGPUFailsTheTestsThatNeedIt(t *testing.T) {
	if e, err := cuda.New(); err == nil {
		require.NoError(t, e.Close())
		t.Skip("needs a machine without a GPU")
	}
	for value, want := range map[string]string{"": "--- SKIP: TestInfoDescribesTheDevice", "1": "--- FAIL: TestInfoDescribesTheDevice"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestInfoDescribesTheDevice$", "-test.v")
		cmd.Env = append(os.Environ(), cuda.RequireVariable+"="+value)
		out, err := cmd.CombinedOutput()
		assert.Contains(t, string(out), want)
		assert.Contains(t, string(out), "no usable GPU: ", "the reason")
		assert.Equal(t, value == "1", err != nil, "the exit status")
	}
}

// card is a GPU for the conformance tests.
type card struct {
	*cuda.Engine
	*cuda.Stream
	buffers map[plan.Ptr]*cuda.Buffer
}

func newCard(t *testing.T) *card {
	e := gpu(t)
	s, err := e.NewStream()
	require.NoError(t, err)
	return &card{e, s, map[plan.Ptr]*cuda.Buffer{}}
}

// Close is the engine's and the stream's alike: the test's cleanup calls it.
func (c *card) Close() error { return c.Engine.Close() }

func (c *card) limits() plan.Limits { return c.Info().Limits }

func (c *card) budget() int {
	if testing.Short() {
		return 1e7
	}
	return 4e10
}

func (c *card) alloc(bytes int64) (plan.Ptr, error) {
	b, err := c.NewBuffer(bytes)
	if err != nil {
		return 0, err
	}
	c.buffers[b.Ptr()] = b
	return b.Ptr(), nil
}

func (c *card) free(p plan.Ptr) {
	c.buffers[p].Free()
	delete(c.buffers, p)
}

func TestConformanceOfTheGPU(t *testing.T) { conform(t, newCard(t)) }

// Devices with less shared memory run other plans of the same kernels.
func TestConformanceWithTheSharedMemoryOfASmallerGPU(t *testing.T) {
	c := newCard(t)
	c.PretendSmall()
	conform(t, c)
}

// model is a stack of two layers between Streams and Head with a loss, its
// streams in the given dtype.
func model(t *testing.T, storage tensor.Dtype, preset mhc.Preset) machine.Program {
	t.Helper()
	const n, channels, tokens = 4, 24, 10
	arithmetic := tensor.Float32
	if storage == tensor.Float64 {
		arithmetic = storage
	}
	g := gorgonia.NewGraph()
	p := machine.Program{Graph: g}
	must := func(node *gorgonia.Node, err error) *gorgonia.Node {
		t.Helper()
		require.NoError(t, err)
		return node
	}
	leaf := func(name string, deviation float64, shape ...int) *gorgonia.Node {
		v := uniform(plan.Float32, tensor.Shape(shape).TotalSize(), uint64(len(p.Inputs)), deviation).wide()
		var data any = v
		if arithmetic == tensor.Float32 {
			narrow := make([]float32, len(v))
			for i := range v {
				narrow[i] = float32(v[i])
			}
			data = narrow
		}
		node := gorgonia.NewTensor(g, arithmetic, len(shape), gorgonia.WithName(name), gorgonia.WithShape(shape...),
			gorgonia.WithValue(tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))))
		p.Inputs = append(p.Inputs, node)
		return node
	}
	cast := func(node *gorgonia.Node, to tensor.Dtype) *gorgonia.Node {
		if node.Dtype() == to {
			return node
		}
		return must(op.Cast(node, to))
	}
	cfg := preset.Config(n)
	k, m := n*channels, cfg.Width()
	phi := func(name string, m int) *gorgonia.Node {
		if cfg.Phi == mhc.PhiMK {
			return leaf(name, 0.1, m, k)
		}
		return leaf(name, 0.1, k, m)
	}
	x := must(op.Streams(cast(leaf("x", 1, 2, tokens/2, channels), storage), n))
	for layer := range 2 {
		name := func(s string) string { return fmt.Sprintf("%s%d", s, layer) }
		c, err := op.Coeffs(x, phi(name("phi"), m), leaf(name("b"), 1, m), leaf(name("alpha"), 1, 3), cfg)
		require.NoError(t, err)
		pre, post, res := must(c.Pre()), must(c.Post()), must(c.Res())
		f := must(gorgonia.Tanh(cast(must(op.Pre(x, pre)), arithmetic)))
		x = must(op.PostRes(x, cast(f, storage), post, res, cfg.Apply))
	}
	out := must(op.Head(x, phi("phi_head", n), leaf("b_head", 1, n), leaf("alpha_head", 1, 1), cfg.Head()))
	p.Loss = must(gorgonia.Sum(must(gorgonia.Square(cast(out, arithmetic)))))
	return p
}

// runModel gives the loss and the gradients of a model, each in float64.
func runModel(t require.TestingT, kind machine.Kind, p machine.Program, opts ...gorgonia.VMOpt) [][]float64 {
	vm, err := machine.New(kind, p, opts...)
	require.NoError(t, err)
	defer vm.Close()
	r, err := vm.Run()
	require.NoError(t, err)
	return numbers(r)
}

func numbers(r machine.Result) [][]float64 {
	var all [][]float64
	for _, v := range append([]gorgonia.Value{r.Loss}, r.Gradients...) {
		switch d := v.Data().(type) {
		case float32:
			all = append(all, []float64{float64(d)})
		case float64:
			all = append(all, []float64{d})
		case []float32:
			w := make([]float64, len(d))
			for i, e := range d {
				w[i] = float64(e)
			}
			all = append(all, w)
		case []float64:
			all = append(all, append([]float64(nil), d...))
		}
	}
	return all
}

// TestTheModelOnTheCPU runs the graphs of the tests below without a GPU.
func TestTheModelOnTheCPU(t *testing.T) {
	for _, preset := range mhc.Presets {
		for _, storage := range []tensor.Dtype{tensor.Float64, tensor.Float32, op.BFloat16, op.Float16} {
			want := runModel(t, machine.Tape, model(t, storage, preset))
			require.Len(t, want, 11, "the loss, and gradients of x, two layers and the head")
			for i, got := range runModel(t, machine.Lisp, model(t, storage, preset)) {
				require.Positive(t, norm(want[i]))
				require.LessOrEqual(t, relative(got, want[i]), 1e-2, "%v %v: the loss, or gradient %d", preset, storage, i)
			}
		}
	}
}

func TestGraphsOnTheGPUAgreeWithTheCPU(t *testing.T) {
	e := gpu(t)
	for _, kind := range machine.Kinds {
		for _, preset := range mhc.Presets {
			for storage, bound := range map[tensor.Dtype]float64{tensor.Float32: 2e-5, op.BFloat16: 1e-2, op.Float16: 2e-3} {
				t.Run(fmt.Sprintf("%v_%v_%v", kind, preset, storage), func(t *testing.T) {
					want := runModel(t, kind, model(t, storage, preset))
					got := runModel(t, kind, model(t, storage, preset), gorgonia.WithEngine(e))
					again := runModel(t, kind, model(t, storage, preset), gorgonia.WithEngine(e))
					require.Len(t, got, len(want))
					for i := range want {
						assert.LessOrEqual(t, relative(got[i], want[i]), bound, "the loss, or gradient %d", i)
					}
					assert.Equal(t, got, again, "two runs on the GPU")
				})
			}
		}
	}
	assert.Zero(t, e.Memory().InUse)
}

func TestFloat64GraphsStayOnTheCPU(t *testing.T) {
	e := gpu(t)
	want := runModel(t, machine.Tape, model(t, tensor.Float64, mhc.Liger))
	assert.Equal(t, want, runModel(t, machine.Tape, model(t, tensor.Float64, mhc.Liger), gorgonia.WithEngine(e)))
	assert.Equal(t, cuda.MemoryStats{}, e.Memory(), "nothing went to the device")
}

func TestManyMachinesAtOnce(t *testing.T) {
	shared := gpu(t)
	want := runModel(t, machine.Tape, model(t, op.BFloat16, mhc.Liger), gorgonia.WithEngine(shared))
	var wg sync.WaitGroup
	for i := range 8 {
		e := shared
		if i%2 == 1 {
			e = gpu(t)
		}
		p := model(t, op.BFloat16, mhc.Liger)
		wg.Go(func() {
			vm, err := machine.New(machine.Tape, p, gorgonia.WithEngine(e))
			if !assert.NoError(t, err) {
				return
			}
			defer vm.Close()
			for range 20 {
				r, err := vm.Run()
				if assert.NoError(t, err) {
					assert.Equal(t, want, numbers(r))
				}
			}
		})
	}
	wg.Wait()
}

func TestEveryDeviceComputesTheSame(t *testing.T) {
	want := runModel(t, machine.Tape, model(t, op.BFloat16, mhc.Liger), gorgonia.WithEngine(gpu(t)))
	infos, err := cuda.Devices()
	require.NoError(t, err)
	if len(infos) < 2 {
		t.Skip("needs two GPUs")
	}
	for _, info := range infos[1:] {
		e, err := cuda.New(cuda.Device(info.Index))
		require.NoError(t, err)
		require.Equal(t, info, e.Info())
		if got := runModel(t, machine.Tape, model(t, op.BFloat16, mhc.Liger), gorgonia.WithEngine(e)); info.Limits == infos[0].Limits {
			assert.Equal(t, want, got, "%v", info)
		}
		require.NoError(t, e.Close())
	}
}

func TestRunsOfAGraphLeakNothing(t *testing.T) {
	runs := 1000
	if testing.Short() {
		runs = 20
	}
	e := gpu(t)
	vm, err := machine.New(machine.Tape, model(t, op.BFloat16, mhc.DeepSeekV4), gorgonia.WithEngine(e))
	require.NoError(t, err)
	defer vm.Close()
	for range 8 { // until the pool and the rings have grown
		_, err := vm.Run()
		require.NoError(t, err)
	}
	pool := e.Memory()
	free, _, err := e.DeviceMemory()
	require.NoError(t, err)
	start := time.Now()
	for range runs {
		_, err := vm.Run()
		require.NoError(t, err)
	}
	t.Logf("%d runs, forward and backward, %v each", runs, time.Since(start)/time.Duration(runs))
	after, _, err := e.DeviceMemory()
	require.NoError(t, err)
	assert.Equal(t, free, after, "free memory of the device")
	assert.Equal(t, pool, e.Memory())
	assert.Zero(t, pool.InUse)
}

func TestEnginesLeakNothing(t *testing.T) {
	e := gpu(t) // keeps the context
	x := tensor.New(tensor.WithShape(3, 4, 8), tensor.Of(tensor.Float32))
	cycle := func() {
		other, err := cuda.New()
		require.NoError(t, err)
		_, err = other.StreamsBackward(x)
		require.NoError(t, err)
		_, err = other.NewBuffer(64 << 20)
		require.NoError(t, err)
		_, err = other.NewStream()
		require.NoError(t, err)
		require.NoError(t, other.Close())
	}
	cycle()
	free, _, err := e.DeviceMemory()
	require.NoError(t, err)
	for range 10 {
		cycle()
	}
	after, _, err := e.DeviceMemory()
	require.NoError(t, err)
	assert.Equal(t, free, after)
}

func TestOutOfDeviceMemory(t *testing.T) {
	e := gpu(t)
	_, total, err := e.DeviceMemory()
	require.NoError(t, err)
	_, err = e.NewBuffer(2 * total)
	require.ErrorIs(t, err, driver.OutOfMemory)
	require.ErrorContains(t, err, fmt.Sprintf("of the device's %d are free", total))
	x := tensor.New(tensor.WithShape(1, 2, 3), tensor.WithBacking([]float32{1, 2, 3, 4, 5, 6}))
	sum, err := e.StreamsBackward(x)
	require.NoError(t, err, "the engine goes on")
	assert.Equal(t, []float32{5, 7, 9}, sum.Data())
}

func TestACorruptedFatbin(t *testing.T) {
	gpu(t)
	image := bytes.Clone(kernels.Fatbin)
	copy(image, "no fatbin")
	_, err := cuda.NewWithImage(image)
	require.ErrorContains(t, err, "embedded kernels do not load")
	var code driver.Code
	require.ErrorAs(t, err, &code)
}

func TestDebugMode(t *testing.T) {
	gpu(t)
	want := runModel(t, machine.Tape, model(t, tensor.Float32, mhc.Paper), gorgonia.WithEngine(gpu(t)))
	t.Setenv(cuda.DebugVariable, "1")
	assert.Equal(t, want, runModel(t, machine.Tape, model(t, tensor.Float32, mhc.Paper), gorgonia.WithEngine(gpu(t))))
}

// loseVariable makes TestALostDevice break the context of its process.
const loseVariable = "MHC_TEST_LOSE_DEVICE"

// TestALostDevice lets a kernel write where there is no memory, in a process of
// its own, since no other use of the device is possible there afterwards.
func TestALostDevice(t *testing.T) {
	if os.Getenv(loseVariable) == "" {
		gpu(t)
		cmd := exec.Command(os.Args[0], "-test.run=^TestALostDevice$", "-test.v")
		cmd.Env = append(os.Environ(), loseVariable+"=1", cuda.DebugVariable+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: TestALostDevice")
		return
	}
	e := gpu(t)
	s, err := e.NewStream()
	require.NoError(t, err)
	lost := s.Run(&plan.StreamsForward{Tokens: 1, Streams: 2, Channels: 64, X: 1 << 12, Out: 1 << 13})
	require.ErrorContains(t, lost, "is lost to this process: cuda: kernel mhc_streams_fwd_f32, grid [")
	require.ErrorContains(t, lost, "StreamsForward &{Tokens:1 Streams:2 Channels:64 ")
	_, err = e.StreamsBackward(tensor.New(tensor.WithShape(1, 2, 3), tensor.Of(tensor.Float32)))
	require.Equal(t, lost, err)
	require.NoError(t, e.Close())
	require.ErrorIs(t, s.Run(&plan.Cast{}), cuda.ErrClosed)
}

// TestOffsetsBeyond31Bits runs the operators on an x of more than 2^31 elements,
// of which every block of tokens is a copy of the first, and compares tokens at
// its end, and the sums.
func TestOffsetsBeyond31Bits(t *testing.T) {
	if testing.Short() {
		t.Skip("needs 30 GiB of device memory and seconds")
	}
	c := newCard(t)
	const n, channels, block = 4, 4096, 1024
	const k, blocks = n * channels, (1<<31)/(n*channels*block) + 1
	const tokens = block * blocks // tokens*k = 2^31 + 2^24
	if free, _, err := c.DeviceMemory(); err != nil || free < 32<<30 {
		t.Skipf("needs 32 GiB of free device memory, has %d bytes (%v)", free, err)
	}
	cfg := mhc.Liger.Config(n)
	m := cfg.Width()
	typ := plan.BFloat16
	alloc := func(bytes int64) plan.Ptr {
		p, err := c.alloc(bytes)
		require.NoError(t, err)
		return p
	}
	// repeated is device memory of tokens rows that repeat a block of them.
	repeated := func(a array) plan.Ptr {
		bytes := int64(len(a.data))
		p := alloc(bytes * blocks)
		require.NoError(t, c.Write(p, a.data))
		for i := int64(1); i < blocks; i++ {
			require.NoError(t, c.Copy(p+plan.Ptr(i*bytes), p, bytes))
		}
		return p
	}
	one := func(a array) plan.Ptr {
		p := alloc(int64(len(a.data)))
		require.NoError(t, c.Write(p, a.data))
		return p
	}
	// last reads the last rows of a result.
	const rows = 8
	last := func(p plan.Ptr, typ plan.Type, width int) []float64 {
		a := newArray(typ, rows*width)
		require.NoError(t, c.Read(a.data, p+plan.Ptr((tokens-rows)*int64(width)*typ.Size())))
		return a.wide()
	}
	tail := func(a array, width int) []float64 { return a.take((block-rows)*width, block*width) }

	x, phi := uniform(typ, block*k, 1, 1), uniform(typ, k*m, 2, 1/math.Sqrt(k))
	b, alpha := uniform(plan.Float32, m, 3, 1), uniform(plan.Float32, 3, 4, 1)
	up := []array{uniform(plan.Float32, block*n, 5, 1), uniform(plan.Float32, block*n, 6, 1), uniform(plan.Float32, block*n*n, 7, 1)}
	fwd := plan.CoeffsForward{
		Tokens: tokens, Streams: n, Channels: channels, XType: typ, PhiType: typ, RMSEps: cfg.RMSEps, PostMult: cfg.PostMult,
		Sinkhorn: cfg.Sinkhorn, X: repeated(x), Phi: one(phi), B: one(b), Alpha: one(alpha),
		HPre: alloc(tokens * n * 4), HPost: alloc(tokens * n * 4), HRes: alloc(tokens * n * n * 4), Mix: alloc(tokens * int64(m) * 4), R: alloc(tokens * 4),
	}
	require.NoError(t, c.Run(&fwd))
	in := coeffs.Inputs[float64, float64, float64]{X: tail(x, k), Phi: phi.wide(), B: b.wide(), Alpha: alpha.wide()}
	want := coeffs.Outputs[float64]{Pre: zeros(rows * n), Post: zeros(rows * n), Res: zeros(rows * n * n), Mix: zeros(rows * m), R: zeros(rows)}
	require.NoError(t, coeffs.Forward(want, in, rows, channels, cfg))
	assert.LessOrEqual(t, relative(last(fwd.HPre, plan.Float32, n), want.Pre), coeffsBound, "h_pre")
	assert.LessOrEqual(t, relative(last(fwd.HRes, plan.Float32, n*n), want.Res), coeffsBound, "h_res")
	assert.LessOrEqual(t, relative(last(fwd.Mix, plan.Float32, m), want.Mix), coeffsBound, "mix")

	bwd := plan.CoeffsBackward{
		Tokens: tokens, Streams: n, Channels: channels, XType: typ, PhiType: typ, PostMult: cfg.PostMult, Sinkhorn: fwd.Sinkhorn,
		X: fwd.X, Phi: fwd.Phi, B: fwd.B, Alpha: fwd.Alpha, Mix: fwd.Mix, R: fwd.R,
		GPre: repeated(up[0]), GPost: repeated(up[1]), GRes: repeated(up[2]),
		DX: alloc(tokens * k * 2), DPhi: alloc(k * int64(m) * 4), DPhiType: plan.Float32, DB: alloc(int64(m) * 4), DAlpha: alloc(12),
	}
	require.NoError(t, c.Run(&bwd))
	ref := coeffs.Gradients[float64, float64, float64]{X: zeros(rows * k), B: zeros(m), Alpha: zeros(3)}
	require.NoError(t, coeffs.Backward(ref, coeffs.Upstream[float64]{Pre: tail(up[0], n), Post: tail(up[1], n), Res: tail(up[2], n*n)}, in, want, rows, channels, cfg))
	assert.LessOrEqual(t, relative(last(bwd.DX, typ, k), ref.X), dxBound(typ), "dx")

	all := coeffs.Inputs[float64, float64, float64]{X: x.wide(), Phi: in.Phi, B: in.B, Alpha: in.Alpha}
	kept := coeffs.Outputs[float64]{Pre: zeros(block * n), Post: zeros(block * n), Res: zeros(block * n * n), Mix: zeros(block * m), R: zeros(block)}
	require.NoError(t, coeffs.Forward(kept, all, block, channels, cfg))
	sums := coeffs.Gradients[float64, float64, float64]{Phi: zeros(k * m), B: zeros(m), Alpha: zeros(3)}
	require.NoError(t, coeffs.Backward(sums, coeffs.Upstream[float64]{Pre: up[0].wide(), Post: up[1].wide(), Res: up[2].wide()}, all, kept, block, channels, cfg))
	for name, r := range map[string]struct {
		p    plan.Ptr
		want []float64
	}{"dphi": {bwd.DPhi, sums.Phi}, "db": {bwd.DB, sums.B}, "dalpha": {bwd.DAlpha, sums.Alpha}} {
		got := newArray(plan.Float32, len(r.want))
		require.NoError(t, c.Read(got.data, r.p))
		whole := make([]float64, len(r.want))
		for i, v := range r.want {
			whole[i] = v * blocks
		}
		assert.LessOrEqual(t, relative(got.wide(), whole), sumBound(typ), name)
	}

	f := uniform(typ, block*channels, 8, 1)
	post := plan.PostResForward{
		Tokens: tokens, Streams: n, Channels: channels, XType: typ, X: fwd.X, F: repeated(f), HRes: fwd.HRes, HPost: fwd.HPost, Out: bwd.DX,
	}
	require.NoError(t, c.Run(&post))
	d := streams.Dims{Tokens: rows, Streams: n, Channels: channels}
	out := zeros(rows * k)
	require.NoError(t, streams.PostRes(out, in.X, tail(f, channels), last(fwd.HPost, plan.Float32, n), last(fwd.HRes, plan.Float32, n*n), d, mhc.ApplyRows))
	assert.LessOrEqual(t, relative(last(post.Out, typ, k), out), stored(typ), "PostRes")

	back := plan.PostResBackward{
		Tokens: tokens, Streams: n, Channels: channels, XType: typ, X: fwd.X, F: post.F, HRes: fwd.HRes, HPost: fwd.HPost, G: fwd.X,
		DX: bwd.DX, DF: alloc(tokens * channels * 2), DHPost: alloc(tokens * n * 4), DHRes: alloc(tokens * n * n * 4),
	}
	require.NoError(t, c.Run(&back))
	grad := streams.PostResGradients[float64, float64]{X: zeros(rows * k), F: zeros(rows * channels), HPost: zeros(rows * n), HRes: zeros(rows * n * n)}
	require.NoError(t, streams.PostResBackward(grad, in.X, tail(f, channels), last(fwd.HPost, plan.Float32, n), last(fwd.HRes, plan.Float32, n*n), in.X, d, mhc.ApplyRows))
	assert.LessOrEqual(t, relative(last(back.DX, typ, k), grad.X), stored(typ), "PostRes dx")
	assert.LessOrEqual(t, relative(last(back.DF, typ, channels), grad.F), stored(typ), "PostRes df")
	assert.LessOrEqual(t, relative(last(back.DHRes, plan.Float32, n*n), grad.HRes), sumBound(plan.Float32), "PostRes dh_res")

	pre := plan.PreForward{Tokens: tokens, Streams: n, Channels: channels, XType: typ, X: fwd.X, HPre: fwd.HPre, Out: back.DF}
	require.NoError(t, c.Run(&pre))
	read := zeros(rows * channels)
	require.NoError(t, streams.Pre(read, in.X, last(fwd.HPre, plan.Float32, n), d))
	assert.LessOrEqual(t, relative(last(pre.Out, typ, channels), read), stored(typ), "Pre")

	spread := plan.StreamsForward{Tokens: tokens, Streams: n, Channels: channels, XType: typ, X: post.F, Out: bwd.DX}
	require.NoError(t, c.Run(&spread))
	copies := zeros(rows * k)
	require.NoError(t, streams.Expand(copies, tail(f, channels), d))
	assert.Equal(t, copies, last(spread.Out, typ, k), "Streams")

	cast := plan.Cast{Count: tokens * k, From: typ, To: plan.Float16, In: fwd.X, Out: bwd.DX}
	require.NoError(t, c.Run(&cast))
	assert.LessOrEqual(t, relative(last(cast.Out, plan.Float16, k), in.X), 1e-6, "Cast: bfloat16 of this size fits float16")
}

func TestInfoDescribesTheDevice(t *testing.T) {
	e := gpu(t)
	infos, err := cuda.Devices()
	require.NoError(t, err)
	require.Equal(t, infos[e.Info().Index], e.Info())
	require.NoError(t, e.Info().Supported())
	t.Logf("%v; binding %s", e.Info(), cuda.Binding())
	assert.False(t, strings.TrimSpace(e.Info().Name) == "")
}
