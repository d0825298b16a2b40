//go:build linux

package cuda

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"gorgonia.org/tensor"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/cuda/driver"
	"github.com/mhc-go/mhc/cuda/plan"
	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/op"
	"github.com/mhc-go/mhc/sinkhorn"
)

// threadOf locks the test to its thread, and returns that.
func threadOf(t interface{ Cleanup(func()) }) int {
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	return unix.Gettid()
}

// expand is the kernel of Streams in float32, on a fake.
func expand(f *fake, name string, args []uint64) error {
	if !strings.HasPrefix(name, "mhc_streams_fwd_f32") {
		return nil
	}
	tokens, n, row := int64(args[2]), int64(args[3]), 4*int64(args[4])
	in, out := f.memory(driver.Pointer(args[0]), tokens*row), f.memory(driver.Pointer(args[1]), tokens*n*row)
	for t := range tokens {
		for i := range n {
			copy(out[(t*n+i)*row:], in[t*row:(t+1)*row])
		}
	}
	return nil
}

func random(rng *rand.Rand, shape ...int) *tensor.Dense {
	data := make([]float32, tensor.Shape(shape).TotalSize())
	for i := range data {
		data[i] = float32(rng.NormFloat64())
	}
	return tensor.New(tensor.WithShape(shape...), tensor.WithBacking(data))
}

func requireExpanded(t *testing.T, x, out tensor.Tensor, n int) {
	t.Helper()
	in, got := x.Data().([]float32), out.Data().([]float32)
	channels := x.Shape()[1]
	require.Len(t, got, n*len(in))
	for i, v := range got {
		if want := in[i/(n*channels)*channels+i%channels]; v != want {
			require.Equal(t, want, v, "element %d", i)
		}
	}
}

func TestNewSaysWhyThereIsNoUsableGPU(t *testing.T) {
	for name, c := range map[string]struct {
		set   func(*fake)
		image string
		opts  []Option
		want  string
	}{
		"driver fails": {
			set:  func(f *fake) { f.fail = func(int, string) driver.Code { return 803 } },
			want: "cuda: no usable GPU: cuDeviceGetCount: kernel driver and libcuda differ in version (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, 803)",
		},
		"no such device": {opts: []Option{Device(1)}, want: "cuda: device is 1, want one of 1, from 0"},
		"negative":       {opts: []Option{Device(-1)}, want: "cuda: device is -1, want one of 1, from 0"},
		"too old":        {set: func(f *fake) { f.major = 7 }, want: "cuda: device 0, Fake 0, is sm_75, want sm_80 or newer"},
		"corrupted fatbin": {
			image: "imagf",
			want: "cuda: the 5 bytes of embedded kernels do not load on device 0, Fake 0: " +
				"cuModuleLoadData: kernel image is invalid (CUDA_ERROR_INVALID_IMAGE, 200)",
		},
		"device busy": {
			set: func(f *fake) {
				f.fail = func(_ int, call string) driver.Code {
					if call == "cuDevicePrimaryCtxRetain" {
						return 46
					}
					return 0
				}
			},
			want: "cuda: cannot use device 0, Fake 0: cuDevicePrimaryCtxRetain: device is busy or unavailable (CUDA_ERROR_DEVICE_UNAVAILABLE, 46)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			if c.set != nil {
				c.set(f)
			}
			image := "image"
			if c.image != "" {
				image = c.image
			}
			e, err := newEngine(f, []byte(image), c.opts...)
			require.EqualError(t, err, c.want)
			require.Nil(t, e)
			f.requireClean(t)
		})
	}
}

func TestDevicesListsThoseThatAreNotSupportedToo(t *testing.T) {
	f := newFake()
	f.devices, f.major = 2, 7
	infos, err := devices(f)
	require.NoError(t, err)
	require.Len(t, infos, 2)
	assert.Equal(t, Info{
		Index: 1, Name: "Fake 1", Memory: 1 << 30, Major: 7, Minor: 5, L2: 50 << 20, Driver: 12030,
		Limits: plan.Limits{SMs: 132, SharedPerBlock: 232448, SharedPerSM: 233472},
	}, infos[1])
	assert.Equal(t, "1: Fake 1, sm_75, 132 multiprocessors, 1024 MiB, driver CUDA 12.3", infos[1].String())
	assert.ErrorContains(t, infos[1].Supported(), "want sm_80 or newer")
}

func TestStreamsCopyAnySizeBothWays(t *testing.T) {
	f := newFake()
	e := f.engine(t)
	e.chunk = 4096
	s, err := e.NewStream()
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 3, 4095, 4096, 4097, ringLength * 4096, (3*ringLength+1)*4096 + 7} {
		b, err := e.NewBuffer(int64(n))
		require.NoError(t, err)
		require.EqualValues(t, n, b.Len())
		src := make([]byte, n)
		for i := 0; i+8 <= n; i += 8 {
			binary.LittleEndian.PutUint64(src[i:], rng.Uint64())
		}
		want := append([]byte(nil), src...)
		require.NoError(t, s.Write(b.Ptr(), src))
		clear(src) // Write is done with it, though the device has not copied yet
		got := make([]byte, n)
		require.NoError(t, s.Read(got, b.Ptr()))
		require.True(t, string(want) == string(got), "%d bytes came back changed", n)
		b.Free()
	}
}

func TestStreamsFillAndCopyDeviceMemory(t *testing.T) {
	e := newFake().engine(t)
	s, err := e.NewStream()
	require.NoError(t, err)
	a, err := e.NewBuffer(16)
	require.NoError(t, err)
	b, err := e.NewBuffer(16)
	require.NoError(t, err)
	require.NoError(t, s.Fill(a.Ptr(), 0x04030201, 4))
	require.NoError(t, s.Copy(b.Ptr(), a.Ptr(), 16))
	got := make([]byte, 16)
	require.NoError(t, s.Read(got, b.Ptr()))
	require.Equal(t, []byte{1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}, got)
}

func TestHostTensorsPassThroughTheDevice(t *testing.T) {
	f := newFake()
	f.kernel = expand
	e := f.engine(t)
	e.chunk = 8192
	rng := rand.New(rand.NewPCG(3, 4))
	for _, shape := range [][]int{{1, 1}, {3, 5}, {70, 1024}} { // the last one takes many rounds of the ring
		x := random(rng, shape...)
		out, err := e.Streams(x, 3)
		require.NoError(t, err)
		require.Equal(t, tensor.Shape{shape[0], 3, shape[1]}, out.Shape())
		require.Same(t, e, out.Engine())
		requireExpanded(t, x, out, 3)
	}
}

// operands are valid ones of every operator, of 6 tokens, 4 streams and 8
// channels.
type operands struct {
	x, phi, b, alpha, pre, post, res, mix, r, f tensor.Tensor
	headPhi, headB, headAlpha, headMix          tensor.Tensor
}

func newOperands() operands {
	rng := rand.New(rand.NewPCG(5, 6))
	return operands{
		x: random(rng, 2, 3, 4, 8), phi: random(rng, 32, 24), b: random(rng, 24), alpha: random(rng, 3),
		pre: random(rng, 2, 3, 4), post: random(rng, 2, 3, 4), res: random(rng, 2, 3, 4, 4), mix: random(rng, 2, 3, 24),
		r: random(rng, 2, 3), f: random(rng, 2, 3, 8),
		headPhi: random(rng, 32, 4), headB: random(rng, 4), headAlpha: random(rng, 1), headMix: random(rng, 2, 3, 4),
	}
}

// each calls f with the name of every operator and a function that runs it.
func (o operands) each(f func(name string, run func(e *Engine) ([]tensor.Tensor, error))) {
	cfg := mhc.Liger.Config(4)
	coeffs := op.CoeffsInputs{X: o.x, Phi: o.phi, B: o.b, Alpha: o.alpha}
	post := op.PostResInputs{X: o.x, F: o.f, HPost: o.post, HRes: o.res}
	head := op.HeadInputs{X: o.x, Phi: o.headPhi, B: o.headB, Alpha: o.headAlpha}
	one := func(t tensor.Tensor, err error) ([]tensor.Tensor, error) { return []tensor.Tensor{t}, err }
	two := func(t, u tensor.Tensor, err error) ([]tensor.Tensor, error) { return []tensor.Tensor{t, u}, err }
	f("Coeffs", func(e *Engine) ([]tensor.Tensor, error) {
		out, err := e.Coeffs(coeffs, cfg)
		return []tensor.Tensor{out.Pre, out.Post, out.Res, out.Mix, out.R}, err
	})
	f("CoeffsBackward", func(e *Engine) ([]tensor.Tensor, error) {
		out, err := e.CoeffsBackward(coeffs, op.CoeffsOutputs{Mix: o.mix, R: o.r}, op.CoeffsUpstream{Post: o.post}, cfg)
		return []tensor.Tensor{out.X, out.Phi, out.B, out.Alpha}, err
	})
	f("MatMulRMS", func(e *Engine) ([]tensor.Tensor, error) {
		return two(e.MatMulRMS(o.x, o.phi, op.MatMulRMSConfig{}))
	})
	f("MatMulRMSBackward", func(e *Engine) ([]tensor.Tensor, error) {
		return two(e.MatMulRMSBackward(o.x, o.phi, o.mix, o.r, o.mix, op.MatMulRMSConfig{}))
	})
	f("Sinkhorn", func(e *Engine) ([]tensor.Tensor, error) { return one(e.Sinkhorn(o.res, cfg.Sinkhorn)) })
	f("SinkhornBackward", func(e *Engine) ([]tensor.Tensor, error) {
		return one(e.SinkhornBackward(o.res, o.res, cfg.Sinkhorn))
	})
	f("Pre", func(e *Engine) ([]tensor.Tensor, error) { return one(e.Pre(o.x, o.pre)) })
	f("PreBackward", func(e *Engine) ([]tensor.Tensor, error) { return two(e.PreBackward(o.x, o.pre, o.f)) })
	f("PostRes", func(e *Engine) ([]tensor.Tensor, error) { return one(e.PostRes(post, mhc.ApplyTransposed)) })
	f("PostResBackward", func(e *Engine) ([]tensor.Tensor, error) {
		out, err := e.PostResBackward(post, o.x, mhc.ApplyRows)
		return []tensor.Tensor{out.X, out.F, out.HPost, out.HRes}, err
	})
	f("Streams", func(e *Engine) ([]tensor.Tensor, error) { return one(e.Streams(o.f, 4)) })
	f("StreamsBackward", func(e *Engine) ([]tensor.Tensor, error) { return one(e.StreamsBackward(o.x)) })
	f("Head", func(e *Engine) ([]tensor.Tensor, error) {
		out, err := e.Head(head, cfg.Head())
		return []tensor.Tensor{out.Out, out.Mix, out.R}, err
	})
	f("HeadBackward", func(e *Engine) ([]tensor.Tensor, error) {
		out, err := e.HeadBackward(head, op.HeadOutputs{Mix: o.headMix, R: o.r}, o.f, cfg.Head())
		return []tensor.Tensor{out.X, out.Phi, out.B, out.Alpha}, err
	})
	f("Cast", func(e *Engine) ([]tensor.Tensor, error) { return one(e.Cast(o.x, op.BFloat16)) })
}

// all are the operands, to compare.
func (o operands) all() []tensor.Tensor {
	return []tensor.Tensor{o.x, o.phi, o.b, o.alpha, o.pre, o.post, o.res, o.mix, o.r, o.f, o.headPhi, o.headB, o.headAlpha, o.headMix}
}

func TestOperatorsGiveTheShapesOfTheContract(t *testing.T) {
	want := map[string][]tensor.Shape{
		"Coeffs":            {{2, 3, 4}, {2, 3, 4}, {2, 3, 4, 4}, {2, 3, 24}, {2, 3}},
		"CoeffsBackward":    {{2, 3, 4, 8}, {32, 24}, {24}, {3}},
		"MatMulRMS":         {{2, 3, 24}, {2, 3}},
		"MatMulRMSBackward": {{2, 3, 4, 8}, {32, 24}},
		"Sinkhorn":          {{2, 3, 4, 4}},
		"SinkhornBackward":  {{2, 3, 4, 4}},
		"Pre":               {{2, 3, 8}},
		"PreBackward":       {{2, 3, 4, 8}, {2, 3, 4}},
		"PostRes":           {{2, 3, 4, 8}},
		"PostResBackward":   {{2, 3, 4, 8}, {2, 3, 8}, {2, 3, 4}, {2, 3, 4, 4}},
		"Streams":           {{2, 3, 4, 8}},
		"StreamsBackward":   {{2, 3, 8}},
		"Head":              {{2, 3, 8}, {2, 3, 4}, {2, 3}},
		"HeadBackward":      {{2, 3, 4, 8}, {32, 4}, {4}, {1}},
		"Cast":              {{2, 3, 4, 8}},
	}
	f := newFake()
	e := f.engine(t)
	o, before := newOperands(), newOperands()
	o.each(func(name string, run func(*Engine) ([]tensor.Tensor, error)) {
		launches := f.count("cuLaunchKernel")
		out, err := run(e)
		require.NoError(t, err, name)
		require.Len(t, out, len(want[name]), name)
		for i, shape := range want[name] {
			assert.Equal(t, shape, out[i].Shape(), "%s, result %d", name, i)
			dt := tensor.Float32
			if name == "Cast" {
				dt = op.BFloat16
			}
			assert.Equal(t, dt, out[i].Dtype(), "%s, result %d", name, i)
		}
		assert.Greater(t, f.count("cuLaunchKernel"), launches, "%s launched nothing", name)
	})
	for i, in := range o.all() {
		assert.Equal(t, before.all()[i].Data(), in.Data(), "operand %d was written", i)
	}
	assert.Zero(t, e.Memory().InUse)
}

func TestOneTokenWithoutDimensionsHasAnROfOne(t *testing.T) {
	e := newFake().engine(t)
	rng := rand.New(rand.NewPCG(1, 1))
	cfg := mhc.Paper.Config(4)
	out, err := e.Coeffs(op.CoeffsInputs{X: random(rng, 4, 8), Phi: random(rng, 32, 24), B: random(rng, 24), Alpha: random(rng, 3)}, cfg)
	require.NoError(t, err)
	assert.Equal(t, tensor.Shape{1}, out.R.Shape())
	assert.Equal(t, tensor.Shape{4}, out.Pre.Shape())
	assert.Equal(t, tensor.Shape{4, 4}, out.Res.Shape())
}

func TestMatMulRMSTakesPlainRowsAndEitherLayout(t *testing.T) {
	e := newFake().engine(t)
	rng := rand.New(rand.NewPCG(1, 1))
	mix, r, err := e.MatMulRMS(random(rng, 5, 32), random(rng, 7, 32), op.MatMulRMSConfig{Phi: mhc.PhiMK})
	require.NoError(t, err)
	assert.Equal(t, tensor.Shape{5, 7}, mix.Shape())
	assert.Equal(t, tensor.Shape{5}, r.Shape())
}

func TestRepeatedCallsAllocateNothing(t *testing.T) {
	f := newFake()
	e := f.engine(t)
	o := newOperands()
	once := func() {
		o.each(func(name string, run func(*Engine) ([]tensor.Tensor, error)) {
			_, err := run(e)
			require.NoError(t, err, name)
		})
	}
	for range hostStreams { // until each stream has its page-locked memory
		once()
	}
	calls := []string{"cuMemAlloc", "cuMemFree", "cuMemHostAlloc", "cuStreamCreate", "cuEventCreate", "cuModuleGetFunction", "cuFuncSetAttribute"}
	var before []int
	for _, call := range calls {
		before = append(before, f.count(call))
	}
	for range 100 {
		once()
	}
	for i, call := range calls {
		assert.Equal(t, before[i], f.count(call), call)
	}
}

func TestWhatTheKernelsDoNotKnowIsUnsupported(t *testing.T) {
	f := newFake()
	e := f.engine(t)
	calls := f.calls
	rng := rand.New(rand.NewPCG(1, 1))
	doubles := tensor.New(tensor.WithShape(2, 4, 8), tensor.Of(tensor.Float64))
	halves := tensor.New(tensor.WithShape(2, 8), tensor.Of(op.Float16))
	for name, run := range map[string]func() error{
		"float64":      func() error { _, err := e.StreamsBackward(doubles); return err },
		"float64 cast": func() error { _, err := e.Cast(random(rng, 3), tensor.Float64); return err },
		"17 streams":   func() error { _, err := e.Streams(random(rng, 2, 8), plan.MaxStreams+1); return err },
		"n 65": func() error {
			_, err := e.Sinkhorn(random(rng, 65, 65), sinkhorn.Config{Iterations: 1})
			return err
		},
		"M 321": func() error {
			_, _, err := e.MatMulRMS(random(rng, 2, 8), random(rng, 8, plan.MaxColumns+1), op.MatMulRMSConfig{})
			return err
		},
		"f of another dtype": func() error {
			_, err := e.PostRes(op.PostResInputs{X: random(rng, 2, 4, 8), F: halves, HPost: random(rng, 2, 4), HRes: random(rng, 2, 4, 4)}, mhc.ApplyRows)
			return err
		},
		"AddAll": func() error { _, err := e.AddAll(halves, halves); return err },
	} {
		err := run()
		assert.ErrorIs(t, err, errors.ErrUnsupported, name)
		assert.ErrorContains(t, err, "cuda: ", name)
	}
	assert.Equal(t, calls, f.calls, "nothing reached the driver")
}

func TestViewsThatAreNotContiguousAreRefused(t *testing.T) {
	e := newFake().engine(t)
	x := random(rand.New(rand.NewPCG(1, 1)), 6, 8)
	view, err := x.Slice(nil, tensor.S(2, 5))
	require.NoError(t, err)
	_, err = e.Streams(view, 2)
	require.EqualError(t, err, "cuda: x: a tensor of shape (6, 3) is not contiguous")

	rows, err := x.Slice(tensor.S(2, 5))
	require.NoError(t, err)
	out, err := e.Streams(rows, 2)
	require.NoError(t, err, "rows of a tensor are contiguous")
	require.Equal(t, tensor.Shape{3, 2, 8}, out.Shape())
}

func TestManyGoroutinesShareAnEngine(t *testing.T) {
	f := newFake()
	f.kernel = expand
	e := f.engine(t)
	var wg sync.WaitGroup
	for g := range 12 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 9))
			for range 20 {
				x := random(rng, 1+rng.IntN(30), 1+rng.IntN(200))
				out, err := e.Streams(x, 2)
				if assert.NoError(t, err) {
					requireExpanded(t, x, out, 2)
				}
				runtime.Gosched()
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, f.count("cuStreamCreate"), hostStreams)
	assert.Zero(t, e.Memory().InUse)
}

func TestCloseFreesEverythingOnceAndEndsTheEngine(t *testing.T) {
	f := newFake()
	e := f.engine(t)
	s, err := e.NewStream()
	require.NoError(t, err)
	b, err := e.NewBuffer(1 << 20)
	require.NoError(t, err)
	require.NoError(t, s.Write(b.Ptr(), make([]byte, 1<<20)))
	o := newOperands()
	_, err = e.Pre(o.x, o.pre)
	require.NoError(t, err)

	require.NoError(t, e.Close())
	f.requireClean(t)
	calls := f.calls
	require.NoError(t, e.Close())
	require.NoError(t, s.Close())
	b.Free()
	require.Equal(t, calls, f.calls, "after Close nothing reaches the driver")
	require.Equal(t, MemoryStats{Peak: e.Memory().Peak}, e.Memory())

	_, err = e.Pre(o.x, o.pre)
	require.ErrorIs(t, err, ErrClosed)
	_, err = e.NewBuffer(1)
	require.ErrorIs(t, err, ErrClosed)
	_, err = e.NewStream()
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, s.Synchronize(), ErrClosed)
	require.ErrorIs(t, e.Trim(), ErrClosed)
}

func TestCloseWaitsForTheCallsUnderWay(t *testing.T) {
	f := newFake()
	f.kernel = expand
	e := f.engine(t)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 9))
			for {
				x := random(rng, 5, 7)
				out, err := e.Streams(x, 2)
				if err != nil {
					assert.ErrorIs(t, err, ErrClosed)
					return
				}
				requireExpanded(t, x, out, 2)
			}
		})
	}
	for f.count("cuLaunchKernel") < 20 {
		runtime.Gosched()
	}
	require.NoError(t, e.Close())
	wg.Wait()
	f.requireClean(t)
}

func TestAClosedStreamReturnsItsMemory(t *testing.T) {
	f := newFake()
	e := f.engine(t)
	s, err := e.NewStream()
	require.NoError(t, err)
	b, err := e.NewBuffer(4096)
	require.NoError(t, err)
	run := func(tokens int64) error {
		return s.Run(&plan.MatMulRMSForward{
			Tokens: tokens, K: 8, M: 3, X: b.Ptr(), Phi: b.Ptr(), Mix: b.Ptr(), R: b.Ptr(),
		})
	}
	require.NoError(t, run(1))
	require.NoError(t, run(1000)) // needs more scratch memory
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.Equal(t, blockSize(4096), e.Memory().InUse)
	require.EqualError(t, run(1), "cuda: the stream is closed")
	require.ErrorContains(t, s.Run(&plan.Cast{Count: -1}), "closed")
}

func TestFailuresOfPlainCallsSayWhatWasToBeDone(t *testing.T) {
	f := newFake()
	e := f.engine(t)
	s, err := e.NewStream()
	require.NoError(t, err)
	b, err := e.NewBuffer(16)
	require.NoError(t, err)
	event, err := e.NewEvent()
	require.NoError(t, err)
	require.NoError(t, s.Record(event))
	for _, c := range []struct {
		call, want string
		do         func() error
	}{
		{"cuMemsetD32Async", "cuda: cannot fill device memory: ", func() error { return s.Fill(b.Ptr(), 1, 4) }},
		{"cuMemcpyDtoDAsync", "cuda: cannot copy on the device: ", func() error { return s.Copy(b.Ptr(), b.Ptr(), 4) }},
		{"cuEventRecord", "cuda: cannot record an event: ", func() error { return s.Record(event) }},
		{"cuEventElapsedTime", "cuda: cannot read the time between two events: ", func() error { _, err := event.Since(event); return err }},
		{"cuEventCreate", "cuda: cannot create an event: ", func() error { _, err := e.NewEvent(); return err }},
		{"cuMemGetInfo", "cuda: cannot read how much memory is free: ", func() error { _, _, err := e.DeviceMemory(); return err }},
	} {
		f.fail = func(_ int, call string) driver.Code {
			if call == c.call {
				return 1
			}
			return 0
		}
		require.ErrorContains(t, c.do(), c.want+c.call+": ")
		f.fail = nil
		require.NoError(t, c.do(), c.call)
	}
}

func TestRunReportsWhatIsWrongWithAnOperator(t *testing.T) {
	e := newFake().engine(t)
	s, err := e.NewStream()
	require.NoError(t, err)
	require.ErrorContains(t, s.Run(&plan.PreForward{Tokens: 1, Streams: 99, Channels: 1}), "streams are 99")
	require.ErrorContains(t, s.Run(&plan.PreForward{Tokens: 1, Streams: 2, Channels: 1}), "absent")
	require.NoError(t, s.Run(&plan.PreForward{Tokens: 0, Streams: 2, Channels: 1}), "no tokens, no work")
	require.ErrorContains(t, s.Run(nil), "operator is nil")
	_, err = s.Profile(nil)
	require.ErrorContains(t, err, "operator is nil")
}

// fails makes the k-th launched kernel fail with code.
func fails(code driver.Code) func(*fake, string, []uint64) error {
	return func(*fake, string, []uint64) error {
		return &driver.CallError{Call: "cuStreamSynchronize", Code: code}
	}
}

func TestALostDeviceEndsTheEngineCleanly(t *testing.T) {
	f := newFake()
	e := f.engine(t)
	o := newOperands()
	_, err := e.Pre(o.x, o.pre)
	require.NoError(t, err)
	f.kernel = fails(700)
	before := newOperands()
	_, err = e.Pre(o.x, o.pre)
	requireCode(t, err, 700)
	require.ErrorContains(t, err, "cuda: device 0, Fake 0, is lost to this process: ")
	require.ErrorContains(t, err, "a kernel accessed an illegal address (CUDA_ERROR_ILLEGAL_ADDRESS, 700)")
	require.ErrorContains(t, err, "set MHC_CUDA_DEBUG=1")
	require.Equal(t, before.x.Data(), o.x.Data())

	calls := f.calls
	_, again := e.Head(op.HeadInputs{X: o.x, Phi: o.headPhi, B: o.headB, Alpha: o.headAlpha}, mhc.HeadConfig{})
	require.Equal(t, err, again)
	require.Equal(t, calls, f.calls)
	require.NoError(t, e.Close())
	_, err = e.Pre(o.x, o.pre)
	require.ErrorIs(t, err, ErrClosed)
}

func TestDebugNamesTheKernelThatFailed(t *testing.T) {
	t.Setenv(debugVariable, "1")
	f := newFake()
	e := f.engine(t)
	f.kernel = fails(719)
	o := newOperands()
	_, err := e.Pre(o.x, o.pre)
	requireCode(t, err, 719)
	require.ErrorContains(t, err, "cuda: kernel mhc_pre_fwd_f32_n4, grid [1 1 1], block [32 8 1], 0 bytes shared, of *plan.PreForward &{Tokens:6 Streams:4 Channels:8 XType:f32 ")
	require.NotContains(t, err.Error(), debugVariable)
}

func TestAKernelThatTheFatbinLacksIsNamed(t *testing.T) {
	f := newFake()
	e := f.engine(t)
	f.fail = func(_ int, call string) driver.Code {
		if call == "cuModuleGetFunction" {
			return driver.NotFound
		}
		return 0
	}
	_, err := e.StreamsBackward(newOperands().x)
	requireCode(t, err, driver.NotFound)
	require.ErrorContains(t, err, "cuda: kernel mhc_streams_bwd_f32")
	f.fail = nil
	_, err = e.StreamsBackward(newOperands().x)
	require.NoError(t, err, "the engine goes on")
}

// TestEveryFailingCallIsReported lets each driver call of a scenario fail in
// turn. The calls that free are left out: where they fail, memory is lost.
func TestEveryFailingCallIsReported(t *testing.T) {
	frees := map[string]bool{
		"cuMemFree": true, "cuMemFreeHost": true, "cuStreamDestroy": true, "cuEventDestroy": true, "cuModuleUnload": true,
		"cuDevicePrimaryCtxRelease": true, "cuCtxPopCurrent": true,
	}
	scenario := func(f *fake) (err error) {
		e, err := newEngine(f, []byte("image"))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, e.Close()) }()
		e.chunk = 1024
		rng := rand.New(rand.NewPCG(1, 2))
		x := random(rng, 20, 64)
		before := x.Clone().(*tensor.Dense)
		out, err := e.Streams(x, 3)
		if err != nil {
			if out != nil {
				return fmt.Errorf("a result besides the error %w", err)
			}
			assert.Equal(t, before.Data(), x.Data())
			return err
		}
		s, err := e.NewStream()
		if err != nil {
			return err
		}
		b, err := e.NewBuffer(1 << 16)
		if err != nil {
			return err
		}
		o := &plan.MatMulRMSBackward{
			Tokens: 5, K: 8, M: 3, X: b.Ptr(), Phi: b.Ptr(), Mix: b.Ptr(), R: b.Ptr(), GMix: b.Ptr(), DX: b.Ptr(), DPhi: b.Ptr(),
		}
		if err := s.Run(o); err != nil {
			return err
		}
		if _, err := s.Profile(o); err != nil {
			return err
		}
		_, err = e.CoeffsBackward(op.CoeffsInputs{X: random(rng, 2, 4, 8), Phi: random(rng, 32, 24), B: random(rng, 24), Alpha: random(rng, 3)},
			op.CoeffsOutputs{Mix: random(rng, 2, 24), R: random(rng, 2)}, op.CoeffsUpstream{Res: random(rng, 2, 4, 4)}, mhc.DeepSeekV4.Config(4))
		return err
	}
	whole := newFake()
	require.NoError(t, scenario(whole))
	whole.requireClean(t)
	for _, code := range []driver.Code{driver.OutOfMemory, 1, 719} {
		for k := 1; k <= whole.calls; k++ {
			f := newFake()
			failed := ""
			f.fail = func(i int, call string) driver.Code {
				if i == k && !frees[call] {
					failed = call
					return code
				}
				return 0
			}
			err := scenario(f)
			if failed == "" {
				require.NoError(t, err)
				continue
			}
			if err == nil && code == driver.OutOfMemory && failed == "cuMemAlloc" {
				require.Positive(t, f.count("cuMemFree"), "what the pool kept was freed, and made room")
			} else {
				require.Error(t, err, "call %d, %s", k, failed)
				requireCode(t, err, code)
				require.NotContains(t, err.Error(), "a result besides")
			}
			if failed != "cuCtxPushCurrent" || !strings.Contains(err.Error(), "cuda: close: ") {
				f.requireClean(t) // without a context Close cannot free
			}
		}
	}
}

func TestProfileTimesEachKernel(t *testing.T) {
	f := newFake()
	e := f.engine(t)
	s, err := e.NewStream()
	require.NoError(t, err)
	b, err := e.NewBuffer(1 << 16)
	require.NoError(t, err)
	o := &plan.MatMulRMSForward{Tokens: 5, K: 8, M: 3, X: b.Ptr(), Phi: b.Ptr(), Mix: b.Ptr(), R: b.Ptr()}
	times, err := s.Profile(o)
	require.NoError(t, err)
	require.Len(t, times, 2)
	for i, name := range []string{"mhc_mix_partial_f32", "mhc_mix_reduce"} {
		require.Contains(t, times[i].Launch.Name, name)
		require.Equal(t, "1ms", times[i].Time.String(), "the fake counts one for a kernel")
	}
	start, err := e.NewEvent()
	require.NoError(t, err)
	end, err := e.NewEvent()
	require.NoError(t, err)
	require.NoError(t, s.Record(start))
	require.NoError(t, s.Run(o))
	require.NoError(t, s.Record(end))
	d, err := end.Since(start)
	require.NoError(t, err)
	require.Equal(t, "2ms", d.String())
	require.NoError(t, start.Close())
	require.NoError(t, end.Close())
	require.NoError(t, end.Close())
}

func TestAClosedEventIsNotTheDriversToUse(t *testing.T) {
	f := newFake()
	e := f.engine(t)
	s, err := e.NewStream()
	require.NoError(t, err)
	closed, err := e.NewEvent()
	require.NoError(t, err)
	left, err := e.NewEvent()
	require.NoError(t, err)
	require.NoError(t, s.Record(left))
	require.NoError(t, closed.Close())

	records, waits := f.called["cuEventRecord"], f.called["cuEventSynchronize"]
	require.EqualError(t, s.Record(closed), "cuda: the event is closed")
	_, err = closed.Since(left)
	require.EqualError(t, err, "cuda: the event is closed")
	_, err = left.Since(closed)
	require.EqualError(t, err, "cuda: the event is closed")
	require.Equal(t, records, f.called["cuEventRecord"])
	require.Equal(t, waits, f.called["cuEventSynchronize"])

	require.NoError(t, e.Close())
	require.Empty(t, f.events, "the engine frees the event that is left")
	require.NoError(t, left.Close())
	_, err = left.Since(left)
	require.ErrorIs(t, err, ErrClosed)
}

func TestTheContextOfTheThreadIsRestored(t *testing.T) {
	f := newFake()
	e := f.engine(t)
	thread := threadOf(t)
	f.current[thread] = 1 // some other code's
	_, _, err := e.DeviceMemory()
	require.NoError(t, err)
	require.Equal(t, 1, f.current[thread])
	f.current[thread] = 0
}

func TestSixteenBitTensorsKeepTheirBits(t *testing.T) {
	data, typ, err := contents(tensor.New(tensor.WithShape(2), tensor.WithBacking([]dtype.BFloat16{0x1234, 0xabcd})))
	require.NoError(t, err)
	require.Equal(t, plan.BFloat16, typ)
	require.Equal(t, []byte{0x34, 0x12, 0xcd, 0xab}, data)
	_, typ, err = contents(tensor.New(tensor.WithShape(1), tensor.WithBacking([]dtype.Float16{1})))
	require.NoError(t, err)
	require.Equal(t, plan.Float16, typ)
}
