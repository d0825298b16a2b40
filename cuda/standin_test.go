package cuda_test

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/mhc-go/mhc"
	"github.com/mhc-go/mhc/coeffs"
	"github.com/mhc-go/mhc/cuda"
	"github.com/mhc-go/mhc/cuda/plan"
	"github.com/mhc-go/mhc/dtype"
	"github.com/mhc-go/mhc/rmsnorm"
	"github.com/mhc-go/mhc/sinkhorn"
	"github.com/mhc-go/mhc/streams"
)

// TestConformanceOfTheCPU runs the conformance tests on the CPU packages in
// float32, through the same operators: a test of the tests, on any machine.
func TestConformanceOfTheCPU(t *testing.T) {
	conform(t, &standIn{blocks: map[plan.Ptr][]byte{}, next: 1 << 20})
}

// standIn is a device whose operators are the CPU packages.
type standIn struct {
	blocks map[plan.Ptr][]byte
	next   plan.Ptr
}

func (d *standIn) limits() plan.Limits { return plan.H200 }

func (d *standIn) budget() int {
	if testing.Short() {
		return 2e5
	}
	return 4e6
}

func (d *standIn) alloc(bytes int64) (plan.Ptr, error) {
	p := d.next
	d.next += plan.Ptr(bytes+511) / 256 * 256
	d.blocks[p] = make([]byte, bytes)
	return p, nil
}

func (d *standIn) free(p plan.Ptr) { delete(d.blocks, p) }

func (d *standIn) memory(p plan.Ptr, bytes int) []byte {
	for base, b := range d.blocks {
		if p >= base && p+plan.Ptr(bytes) <= base+plan.Ptr(len(b)) {
			return b[p-base:][:bytes]
		}
	}
	panic(fmt.Sprintf("%d bytes at %#x are not allocated", bytes, p))
}

func (d *standIn) Write(dst plan.Ptr, src []byte) error {
	copy(d.memory(dst, len(src)), src)
	return nil
}

func (d *standIn) Read(dst []byte, src plan.Ptr) error {
	copy(dst, d.memory(src, len(dst)))
	return nil
}

// at are n elements at p; nil for an absent one.
func at[T dtype.Storage](d *standIn, p plan.Ptr, n int) []T {
	if p == 0 {
		return nil
	}
	b := d.memory(p, n*int(unsafe.Sizeof(*new(T))))
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), n)
}

func (d *standIn) RunAt(op cuda.Operator, _ plan.Ptr) error {
	if err := op.Check(); err != nil {
		return err
	}
	var x, phi plan.Type
	switch o := op.(type) {
	case *plan.CoeffsForward:
		x, phi = o.XType, o.PhiType
	case *plan.CoeffsBackward:
		x, phi = o.XType, o.PhiType
	case *plan.MatMulRMSForward:
		x, phi = o.XType, o.PhiType
	case *plan.MatMulRMSBackward:
		x, phi = o.XType, o.PhiType
	case *plan.HeadForward:
		x, phi = o.XType, o.PhiType
	case *plan.HeadBackward:
		x, phi = o.XType, o.PhiType
	case *plan.PreForward:
		x = o.XType
	case *plan.PreBackward:
		x = o.XType
	case *plan.PostResForward:
		x = o.XType
	case *plan.PostResBackward:
		x = o.XType
	case *plan.StreamsForward:
		x = o.XType
	case *plan.StreamsBackward:
		x = o.XType
	case *plan.Cast:
		return d.cast(o)
	}
	switch {
	case x == plan.BFloat16 && phi == x:
		return run[dtype.BFloat16, dtype.BFloat16](d, op)
	case x == plan.BFloat16:
		return run[dtype.BFloat16, float32](d, op)
	case x == plan.Float16 && phi == x:
		return run[dtype.Float16, dtype.Float16](d, op)
	case x == plan.Float16:
		return run[dtype.Float16, float32](d, op)
	}
	return run[float32, float32](d, op)
}

func (d *standIn) cast(o *plan.Cast) error {
	in := array{o.From, d.memory(o.In, int(o.Count*o.From.Size()))}
	out := array{o.To, d.memory(o.Out, int(o.Count*o.To.Size()))}
	for i := range int(o.Count) {
		out.set(i, in.at(i))
	}
	return nil
}

func layout(transposed bool) mhc.PhiLayout {
	if transposed {
		return mhc.PhiMK
	}
	return mhc.PhiKM
}

func applied(transposed bool) mhc.Apply {
	if transposed {
		return mhc.ApplyTransposed
	}
	return mhc.ApplyRows
}

// widened is phi in float32: the kernels round its gradient once, to the type
// that is asked for, whatever that of phi.
func widened[P dtype.Storage](d *standIn, phi plan.Ptr, n int) []float32 {
	wide := make([]float32, n)
	dtype.Widen(wide, at[P](d, phi, n))
	return wide
}

// store rounds a gradient of phi to its type.
func (d *standIn) store(dphi plan.Ptr, typ plan.Type, g []float32) {
	to := array{typ, d.memory(dphi, len(g)*int(typ.Size()))}
	for i, v := range g {
		to.set(i, float64(v))
	}
}

func run[S, P dtype.Storage](d *standIn, op cuda.Operator) error {
	switch o := op.(type) {
	case *plan.CoeffsForward:
		tokens, n, c := int(o.Tokens), o.Streams, o.Channels
		cfg := mhc.Config{
			Streams: n, RMSEps: o.RMSEps, PreEps: o.PreEps, PostMult: o.PostMult, Sinkhorn: o.Sinkhorn, Phi: layout(o.PhiTransposed),
		}
		m := cfg.Width()
		return coeffs.Forward(coeffs.Outputs[float32]{
			Pre: at[float32](d, o.HPre, tokens*n), Post: at[float32](d, o.HPost, tokens*n), Res: at[float32](d, o.HRes, tokens*n*n),
			Mix: at[float32](d, o.Mix, tokens*m), R: at[float32](d, o.R, tokens),
		}, coeffs.Inputs[S, P, float32]{
			X: at[S](d, o.X, tokens*n*c), Phi: at[P](d, o.Phi, n*c*m), B: at[float32](d, o.B, m), Alpha: at[float32](d, o.Alpha, 3),
		}, tokens, c, cfg)
	case *plan.CoeffsBackward:
		tokens, n, c := int(o.Tokens), o.Streams, o.Channels
		cfg := mhc.Config{Streams: n, PostMult: o.PostMult, Sinkhorn: o.Sinkhorn, Phi: layout(o.PhiTransposed)}
		m := cfg.Width()
		gphi := make([]float32, n*c*m)
		err := coeffs.Backward(coeffs.Gradients[S, float32, float32]{
			X: at[S](d, o.DX, tokens*n*c), Phi: gphi, B: at[float32](d, o.DB, m), Alpha: at[float32](d, o.DAlpha, 3),
		}, coeffs.Upstream[float32]{
			Pre: at[float32](d, o.GPre, tokens*n), Post: at[float32](d, o.GPost, tokens*n), Res: at[float32](d, o.GRes, tokens*n*n),
		}, coeffs.Inputs[S, float32, float32]{
			X: at[S](d, o.X, tokens*n*c), Phi: widened[P](d, o.Phi, n*c*m), B: at[float32](d, o.B, m), Alpha: at[float32](d, o.Alpha, 3),
		}, coeffs.Outputs[float32]{Mix: at[float32](d, o.Mix, tokens*m), R: at[float32](d, o.R, tokens)}, tokens, c, cfg)
		d.store(o.DPhi, o.DPhiType, gphi)
		return err
	case *plan.MatMulRMSForward:
		dims := rmsnorm.Dims{Tokens: int(o.Tokens), K: int(o.K), M: int(o.M), Transposed: o.PhiTransposed}
		return rmsnorm.Forward(at[float32](d, o.Mix, dims.Tokens*dims.M), at[float32](d, o.R, dims.Tokens),
			at[S](d, o.X, dims.Tokens*dims.K), at[P](d, o.Phi, dims.K*dims.M), dims, o.RMSEps)
	case *plan.MatMulRMSBackward:
		dims := rmsnorm.Dims{Tokens: int(o.Tokens), K: int(o.K), M: int(o.M), Transposed: o.PhiTransposed}
		gphi := make([]float32, dims.K*dims.M)
		err := rmsnorm.Backward(at[S](d, o.DX, dims.Tokens*dims.K), gphi, at[S](d, o.X, dims.Tokens*dims.K), widened[P](d, o.Phi, dims.K*dims.M),
			at[float32](d, o.Mix, dims.Tokens*dims.M), at[float32](d, o.R, dims.Tokens), at[float32](d, o.GMix, dims.Tokens*dims.M), dims)
		d.store(o.DPhi, o.DPhiType, gphi)
		return err
	case *plan.HeadForward:
		dims := streams.Dims{Tokens: int(o.Tokens), Streams: o.Streams, Channels: o.Channels}
		tokens, n, k := dims.Tokens, o.Streams, o.Streams*o.Channels
		return streams.Head(at[S](d, o.Out, tokens*o.Channels), streams.HeadKept[float32]{Mix: at[float32](d, o.Mix, tokens*n), R: at[float32](d, o.R, tokens)},
			streams.HeadInputs[S, P, float32]{X: at[S](d, o.X, tokens*k), Phi: at[P](d, o.Phi, k*n), B: at[float32](d, o.B, n), Alpha: at[float32](d, o.Alpha, 1)},
			dims, mhc.HeadConfig{RMSEps: o.RMSEps, PreEps: o.PreEps, Phi: layout(o.PhiTransposed)})
	case *plan.HeadBackward:
		dims := streams.Dims{Tokens: int(o.Tokens), Streams: o.Streams, Channels: o.Channels}
		tokens, n, k := dims.Tokens, o.Streams, o.Streams*o.Channels
		gphi := make([]float32, k*n)
		err := streams.HeadBackward(
			streams.HeadInputs[S, float32, float32]{X: at[S](d, o.DX, tokens*k), Phi: gphi, B: at[float32](d, o.DB, n), Alpha: at[float32](d, o.DAlpha, 1)},
			streams.HeadInputs[S, float32, float32]{X: at[S](d, o.X, tokens*k), Phi: widened[P](d, o.Phi, k*n), B: at[float32](d, o.B, n), Alpha: at[float32](d, o.Alpha, 1)},
			streams.HeadKept[float32]{Mix: at[float32](d, o.Mix, tokens*n), R: at[float32](d, o.R, tokens)},
			at[S](d, o.G, tokens*o.Channels), dims, mhc.HeadConfig{PreEps: headPreEps, Phi: layout(o.PhiTransposed)})
		d.store(o.DPhi, o.DPhiType, gphi)
		return err
	case *plan.PreForward:
		dims := streams.Dims{Tokens: int(o.Tokens), Streams: o.Streams, Channels: o.Channels}
		return streams.Pre(at[S](d, o.Out, dims.Tokens*o.Channels), at[S](d, o.X, dims.Tokens*o.Streams*o.Channels), at[float32](d, o.HPre, dims.Tokens*o.Streams), dims)
	case *plan.PreBackward:
		dims := streams.Dims{Tokens: int(o.Tokens), Streams: o.Streams, Channels: o.Channels}
		k := dims.Tokens * o.Streams * o.Channels
		return streams.PreBackward(at[S](d, o.DX, k), at[float32](d, o.DHPre, dims.Tokens*o.Streams), at[S](d, o.X, k),
			at[float32](d, o.HPre, dims.Tokens*o.Streams), at[S](d, o.G, dims.Tokens*o.Channels), dims)
	case *plan.PostResForward:
		dims := streams.Dims{Tokens: int(o.Tokens), Streams: o.Streams, Channels: o.Channels}
		tokens, n, k := dims.Tokens, o.Streams, dims.Tokens*o.Streams*o.Channels
		return streams.PostRes(at[S](d, o.Out, k), at[S](d, o.X, k), at[S](d, o.F, tokens*o.Channels), at[float32](d, o.HPost, tokens*n),
			at[float32](d, o.HRes, tokens*n*n), dims, applied(o.Transposed))
	case *plan.PostResBackward:
		dims := streams.Dims{Tokens: int(o.Tokens), Streams: o.Streams, Channels: o.Channels}
		tokens, n, k := dims.Tokens, o.Streams, dims.Tokens*o.Streams*o.Channels
		return streams.PostResBackward(streams.PostResGradients[S, float32]{
			X: at[S](d, o.DX, k), F: at[S](d, o.DF, tokens*o.Channels), HPost: at[float32](d, o.DHPost, tokens*n), HRes: at[float32](d, o.DHRes, tokens*n*n),
		}, at[S](d, o.X, k), at[S](d, o.F, tokens*o.Channels), at[float32](d, o.HPost, tokens*n), at[float32](d, o.HRes, tokens*n*n), at[S](d, o.G, k),
			dims, applied(o.Transposed))
	case *plan.StreamsForward:
		dims := streams.Dims{Tokens: int(o.Tokens), Streams: o.Streams, Channels: o.Channels}
		return streams.Expand(at[S](d, o.Out, dims.Tokens*o.Streams*o.Channels), at[S](d, o.X, dims.Tokens*o.Channels), dims)
	case *plan.StreamsBackward:
		dims := streams.Dims{Tokens: int(o.Tokens), Streams: o.Streams, Channels: o.Channels}
		return streams.ExpandBackward(at[S](d, o.DX, dims.Tokens*o.Channels), at[S](d, o.G, dims.Tokens*o.Streams*o.Channels), dims)
	case *plan.SinkhornForward:
		k := int(o.Batch) * o.N * o.N
		return sinkhorn.Forward(at[float32](d, o.Out, k), at[float32](d, o.A, k), o.N, o.Sinkhorn)
	case *plan.SinkhornBackward:
		k := int(o.Batch) * o.N * o.N
		return sinkhorn.Backward(at[float32](d, o.DA, k), at[float32](d, o.A, k), at[float32](d, o.G, k), o.N, o.Sinkhorn)
	}
	return fmt.Errorf("no stand-in for %T", op)
}
